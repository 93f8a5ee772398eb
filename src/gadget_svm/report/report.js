const figures = () => [...document.querySelectorAll('.plotly-graph-div')];
const dark = window.matchMedia('(prefers-color-scheme: dark)');
function recolour() {
  const colour = getComputedStyle(document.body).getPropertyValue('--soft').trim();
  figures().forEach(figure => Plotly.relayout(figure, {'font.color': colour}));
}
function against(name) {
  figures().forEach(figure => {
    const axes = figure.layout.meta && figure.layout.meta.axes;
    if (!axes) return;
    const axis = axes[name];
    Plotly.update(figure, {x: figure.data.map(() => axis.x)},
      {'xaxis.title.text': axis.title, 'xaxis.type': axis.type, 'xaxis.autorange': true});
  });
}
document.querySelectorAll('input[name=axis]').forEach(
  input => input.addEventListener('change', () => against(input.value)));
dark.addEventListener('change', recolour);
recolour();
