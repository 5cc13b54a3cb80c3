// Show the map that a reader chooses, of each view, layer and head; small ones serve as the buttons.
for (const box of document.querySelectorAll('.maps')) {
  const views = JSON.parse(box.querySelector('script').textContent);
  const all = selector => [...box.querySelectorAll(selector)];
  const squares = all('rect'), titles = squares.map(square => square.querySelector('title'));
  const pairs = titles.map(title => title.textContent.replace(/: [^:]*$/, ''));
  const heading = box.querySelector('.chosen'), largest = box.querySelector('.largest');
  const name = box.querySelector('h4').textContent;
  const choices = all('.views button'), heads = all('.heads button'), perLayer = views[0][0].length;
  const percent = weight => `${(weight / 10).toFixed(1)} %`;
  let view = 0, chosen = 0;

  function draw(canvas, weights) {
    const pen = canvas.getContext('2d'), most = Math.max(...weights) || 1;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.fillStyle = getComputedStyle(canvas).color;
    weights.forEach((weight, place) => {
      pen.globalAlpha = weight / most;
      pen.fillRect(place % canvas.width, Math.floor(place / canvas.width), 1, 1);
    });
  }

  const weightsOf = place => views[view][Math.floor(place / perLayer)][place % perLayer];

  function show() {
    const weights = weightsOf(chosen), most = Math.max(...weights) || 1;
    squares.forEach((square, place) => {
      square.setAttribute('fill-opacity', (weights[place] / most).toFixed(3));
      titles[place].textContent = `${pairs[place]}: ${percent(weights[place])}`;
    });
    largest.textContent = percent(most);
    heading.textContent = `${name}: ${choices[view].textContent}, ${heads[chosen].getAttribute('aria-label')}`;
    choices.forEach((button, place) => button.setAttribute('aria-pressed', place === view));
    heads.forEach((button, place) => button.setAttribute('aria-pressed', place === chosen));
  }

  function drawAll() {
    heads.forEach((button, place) => draw(button.querySelector('canvas'), weightsOf(place)));
    show();
  }

  choices.forEach((button, place) => button.addEventListener('click', () => { view = place; drawAll(); }));
  heads.forEach((button, place) => button.addEventListener('click', () => { chosen = place; show(); }));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
  drawAll();
}
