"""How the page looks: the colours of the reports, in light and dark, and one column on phones."""

STYLE = """
:root { --page: #fdfcfa; --sheet: #ffffff; --ink: #1f2328; --quiet: #666c74; --line: #e4e1da;
  --accent: #1f5fbf; --button: #1f5fbf; --soft: #e8effa; --track: #eceae4; --warm: #f6c9b8;
  --alarm: #fbe3dc; --alarm-ink: #8c2f14; }
.dark { --page: #14161a; --sheet: #1b1e24; --ink: #e6e4df; --quiet: #9aa0a8; --line: #2e323a;
  --accent: #7fb0ff; --button: #2c5fae; --soft: #22304a; --track: #2a2e36; --warm: #7a3b26;
  --alarm: #452419; --alarm-ink: #f2b09a; }
body, gradio-app { background: var(--page) !important; }
.gradio-container { width: 100%; max-width: 1080px !important; margin: 0 auto !important;
  padding: 0 !important; background: var(--page) !important; }
.gradio-container .html-container { padding: 0 !important; }
.gradio-container .tabitem { padding: .9rem 0 0 !important; border: 0 !important; }
.gradio-container .form { background: transparent !important; border: 0 !important; gap: 1rem;
  overflow: visible; }
.gradio-container .settings { padding: .55rem .9rem !important; border: 1px solid var(--line) !important;
  border-radius: 10px !important; background: var(--sheet) !important; overflow: hidden !important; }
.gradio-container .settings .form { gap: .4rem 1.6rem; }
.gradio-container .settings .block { padding: .35rem .2rem .5rem !important; overflow: visible !important;
  background: transparent !important; }
.gradio-container input[type="range"] { overflow: visible !important; }
.gradio-container input[type="range"]::-webkit-slider-thumb { background: var(--accent) !important;
  box-shadow: none !important; }
.gradio-container .run { align-self: flex-start; width: auto !important; max-width: 100%;
  min-width: min(100%, 14rem) !important; flex-grow: 0 !important; }
main.fillable { padding: 2rem 1.4rem 3rem !important; }
footer { display: none !important; }
.play { color: var(--ink); font-size: 15.5px; line-height: 1.5; }
.play * { box-sizing: border-box; }
.play h1 { font-size: clamp(1.55rem, 5vw, 2.15rem); line-height: 1.15; letter-spacing: -.015em;
  font-weight: 650; margin: 0 0 .9rem; color: var(--ink); overflow-wrap: anywhere; text-wrap: balance; }
.play h3 { font-size: 1rem; font-weight: 650; margin: 0 0 .2rem; color: var(--ink); overflow-wrap: anywhere; }
.play h4 { font-size: .8rem; font-weight: 600; margin: 1rem 0 .45rem; color: var(--quiet); }
.play p { margin: .3rem 0; color: inherit; }
.play code { font-size: .84em; background: var(--track); padding: .1em .35em; border-radius: 4px;
  color: inherit; overflow-wrap: anywhere; }
.models, .answers { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); }
.answers.alone { grid-template-columns: minmax(0, 1fr); }
.answers.alone h3 { display: none; }
.model, .answer { background: var(--sheet); border: 1px solid var(--line); border-radius: 12px;
  min-width: 0; }
.model { padding: .85rem 1.1rem 1rem; }
.answer { padding: 1rem 1.2rem 1.2rem; }
.answers.alone h4:first-of-type { margin-top: 0; }
.model dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .5rem 1rem;
  margin: .7rem 0 0; }
.model dt { font-size: .76rem; color: var(--quiet); margin: 0; }
.model dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.35; }
.play .about { color: var(--quiet); max-width: 46rem; margin: 0; }
.placeholder { color: var(--quiet) !important; border: 1px dashed var(--line); border-radius: 12px;
  padding: 1.4rem !important; text-align: center; }
.ranking { list-style: none; margin: 0; padding: 0; display: grid; gap: .34rem; }
.ranking li { display: grid; grid-template-columns: minmax(6rem, 13rem) minmax(3rem, 1fr) 4.2rem; gap: .8rem;
  align-items: center; margin: 0; }
.ranking span { overflow-wrap: anywhere; line-height: 1.35; }
.ranking i { height: .7rem; border-radius: 4px; background: var(--track); overflow: hidden; display: block; }
.ranking i b { display: block; height: 100%; min-width: 3px; border-radius: 4px;
  background: color-mix(in srgb, var(--accent) 55%, var(--track)); }
.ranking em { font-style: normal; text-align: right; font-variant-numeric: tabular-nums;
  color: var(--quiet); }
.ranking .best span, .ranking .best em { font-weight: 650; }
.ranking .best i b { background: var(--accent); }
.ranking .best em { color: var(--accent); }
.ranking.sentences li { grid-template-columns: minmax(0, 1.6fr) minmax(3rem, 1fr) 4.2rem; }
.passage { font-size: 1.08rem; line-height: 1.65; overflow-wrap: anywhere; white-space: pre-wrap; }
.play mark { background: var(--soft); color: var(--accent); border-radius: 4px; padding: .06em .2em;
  font-weight: 550; box-decoration-break: clone; -webkit-box-decoration-break: clone; }
.play mark sub { font-size: .68em; margin-left: .4em; opacity: .8; vertical-align: baseline; }
.tokens { display: flex; flex-wrap: wrap; gap: .4rem; }
.token { border: 1px solid var(--line); border-radius: 7px; padding: .22rem .5rem; display: inline-flex;
  max-width: 100%; flex-direction: column; overflow-wrap: anywhere;
  background: color-mix(in srgb, var(--warm) var(--shade, 0%), var(--sheet)); }
.token small { font-size: .7rem; color: var(--quiet); font-variant-numeric: tabular-nums; }
.map { overflow-x: auto; max-width: 100%; }
.map svg { max-width: none; height: auto; display: block;
  font: 12px ui-monospace, "DejaVu Sans Mono", monospace; }
.map text { fill: var(--ink); }
.map rect { fill: var(--accent); }
.map rect:hover { stroke: var(--ink); }
.play .map p, .play .note { font-size: .85rem; color: var(--quiet); }
.play .note { margin-top: .9rem; }
.play .refusal { background: var(--alarm); color: var(--alarm-ink); border-radius: 8px; padding: .7rem .9rem;
  margin: .2rem 0 0; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  main.fillable { padding: 1.2rem .9rem 2rem !important; }
  .gradio-container .settings .form { gap: .4rem 1.6rem; }
.gradio-container .settings .block { padding: .35rem .2rem .5rem !important; overflow: visible !important;
  background: transparent !important; }
.gradio-container input[type="range"] { overflow: visible !important; }
.gradio-container input[type="range"]::-webkit-slider-thumb { background: var(--accent) !important;
  box-shadow: none !important; }
.gradio-container .run { width: 100% !important; }
  .ranking li, .ranking.sentences li { grid-template-columns: minmax(0, 1fr) 4.2rem; gap: .1rem .6rem; }
  .ranking span { grid-column: 1; }
  .ranking em { grid-row: 1; grid-column: 2; }
  .ranking i { grid-column: 1 / -1; height: .5rem; }
  .answer { padding: .9rem; }
  .model dl { grid-template-columns: 1fr 1fr; }
  .model code { font-size: .76em; }
}
"""
