"""The style sheet of pages: one scale of sizes, one of distances, and colours that have a meaning.

Blue is what the page is about, orange is a level to compare with, green and red are right and wrong. Colours
follow the reader's light or dark setting. Nothing is wider than its box: tables and charts that need more
room scroll inside their own.
"""

COLOURS = """
:root {
  color-scheme: light dark;
  --paper: #fdfcfa; --card: #ffffff; --ink: #1f2328; --quiet: #626871; --line: #e4e1da;
  --first: #1f5fbf; --second: #b84c14; --third: #8a8f98; --fill: #dfe3e8;
  --right: #d9f0df; --right-ink: #14562b; --wrong: #fbe3dc; --wrong-ink: #8c2f14;
  --truth: #fff1c2; --truth-ink: #6b5200;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1b1e24; --ink: #e6e4df; --quiet: #a2a8b0; --line: #2e323a;
    --first: #7fb0ff; --second: #f0945c; --third: #7d838c; --fill: #343a44;
    --right: #1d3b28; --right-ink: #a5dcb5; --wrong: #452419; --wrong-ink: #f2b09a;
    --truth: #40361a; --truth-ink: #f0d98c;
  }
}
"""

TEXT = """
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.6 Charter, "Bitstream Charter", "Source Serif 4", Georgia, "DejaVu Serif", serif; }
main { max-width: 1020px; margin: 0 auto; padding: 4rem 1.5rem 6rem; }
h1, h2, h3, p, dd, td, th, .verdicts { overflow-wrap: anywhere; }
h1 { font-size: 2.2rem; line-height: 1.15; letter-spacing: -0.015em; margin: 0 0 .6rem; font-weight: 600;
  text-wrap: balance; }
h2 { font-size: 1.4rem; line-height: 1.25; letter-spacing: -0.01em; margin: 3.5rem 0 .6rem;
  padding-top: 1.2rem; font-weight: 600; border-top: 1px solid var(--line); scroll-margin-top: 1rem; }
h3 { font-size: 1.05rem; line-height: 1.35; font-weight: 600; margin: 0 0 .6rem; }
p { max-width: 46rem; margin: .6rem 0 1.2rem; text-wrap: pretty; }
a { color: var(--first); }
code { font: .88em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
dt, .bars, table, nav, .outcome {
  font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.about { font-size: 1.12rem; color: var(--quiet); margin-bottom: 1.6rem; }
.verdicts { list-style: none; margin: 1rem 0 2rem; padding: 0; display: grid; gap: .5rem; }
.verdicts li { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--third);
  border-radius: 6px; padding: .65rem 1rem .7rem; line-height: 1.45; }
.verdicts .better { border-left-color: var(--right-ink); }
.verdicts .worse { border-left-color: var(--wrong-ink); }
.outcome { display: block; font-size: .72rem; font-weight: 650; letter-spacing: .04em; line-height: 1.6;
  text-transform: uppercase; color: var(--quiet); }
.better .outcome { color: var(--right-ink); }
.worse .outcome { color: var(--wrong-ink); }
nav { font-size: .84rem; line-height: 1.5; margin: 0 0 2rem; }
nav ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
"""

BOXES = """
.card, .example { background: var(--card); border: 1px solid var(--line); border-radius: 10px; min-width: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 280px), 1fr)); gap: 1.2rem; }
.cards + p { margin-top: 1.6rem; }
.card { padding: 1.2rem 1.3rem 1.4rem; display: flex; flex-direction: column; }
.card h3 { margin: 0; }
.card strong { font-size: 3rem; line-height: 1.25; font-weight: 600; letter-spacing: -0.02em;
  color: var(--first); overflow-wrap: anywhere; }
.card p { margin: 0 0 1.1rem; color: var(--quiet); font-size: .95rem; line-height: 1.45; flex: 1; }
.bars { display: grid; gap: .55rem; font-size: .84rem; line-height: 1.35; }
.bar { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: .15rem .8rem; }
.bar > span { overflow-wrap: anywhere; }
.bar .number { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
.bar .track { grid-column: 1 / -1; position: relative; height: .6rem; border-radius: 3px;
  background: color-mix(in srgb, var(--fill) 45%, transparent); }
.track i { display: block; height: 100%; min-width: 4px; border-radius: 3px; background: var(--third); }
.track b { position: absolute; top: 50%; height: 2px; margin-top: -1px; min-width: 2px;
  background: var(--ink); }
.track b::before, .track b::after { content: ""; position: absolute; top: -4px; height: 10px; width: 2px;
  background: var(--ink); }
.track b::before { left: 0; }
.track b::after { right: 0; }
.bar.strong { font-weight: 650; color: var(--first); }
.bar.strong i { background: var(--first); }
.examples { display: grid; grid-template-columns: minmax(0, 1fr); gap: .9rem; margin: 1.2rem 0 2.4rem;
  align-items: start; }
.narrow { grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr));
  gap: 1.4rem; margin: 1.4rem 0 2.4rem; align-items: start; }
.beside > section { min-width: 0; }
.beside .examples { margin: 0; }
.example { padding: .9rem 1.2rem 1rem; }
.example .bars { margin: .8rem 0 0; font-size: .8rem; }
dl { display: grid; grid-template-columns: 5.6rem minmax(0, 1fr); gap: .3rem 1rem; margin: 0; }
.narrow .example, .beside .example { font-size: .93rem; line-height: 1.5; }
dt { color: var(--quiet); font-size: .76rem; line-height: 1.65rem; overflow-wrap: anywhere; }
dd { margin: 0; padding-right: .3em; }
.right, .wrong, .truth, .blank { border-radius: 3px; padding: .04em .22em; box-decoration-break: clone;
  -webkit-box-decoration-break: clone; }
.right { background: var(--right); color: var(--right-ink); }
.wrong { background: var(--wrong); color: var(--wrong-ink); }
.truth { background: var(--truth); color: var(--truth-ink); }
.blank { background: var(--fill); color: var(--quiet); }
"""

TABLES = """
.wide, figure { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .9rem; line-height: 1.4; margin: .6rem 0 1.6rem; width: 100%; }
th { color: var(--quiet); font-weight: 500; font-size: .8rem; vertical-align: bottom;
  border-bottom: 1px solid var(--line); overflow-wrap: normal; }
th, td { padding: .42rem 0 .42rem 1.1rem; text-align: right; font-variant-numeric: tabular-nums; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:first-child { white-space: normal; min-width: 9rem; }
td { border-bottom: 1px solid color-mix(in srgb, var(--line) 55%, transparent); }
tr.strong td { font-weight: 650; color: var(--first); }
td u { visibility: hidden; text-decoration: none; }
figure { margin: 1.4rem 0 1.8rem; }
figure svg { display: block; height: auto; width: calc(var(--width) * 1.35px); max-width: 100%;
  min-width: calc(var(--width) * .95px); }
@media (max-width: 640px) {
  main { padding: 2.2rem 1.1rem 4rem; }
  h1 { font-size: 1.7rem; }
  h2 { margin-top: 2.6rem; }
  .card strong { font-size: 2.5rem; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
}
@media print {
  main { padding: 0; }
  nav { display: none; }
  .card, .example, figure, table { break-inside: avoid; }
}
"""

STYLE = COLOURS + TEXT + BOXES + TABLES
