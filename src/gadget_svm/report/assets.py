"""How the report looks, and the script that switches axes and follows light or dark. Nothing is loaded from outside."""

CSS = """
:root { --ink: #1f2937; --soft: #5b6472; --paper: #f6f7f9; --card: #ffffff; --line: #e3e6eb; --accent: #2563eb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --soft: #a3abb8; --paper: #0f141b; --card: #18202a; --line: #2b3542; --accent: #7aa7ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, -apple-system, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 56px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 1.08rem; margin: 0 0 4px; }
p { margin: 0 0 10px; } p.lead { color: var(--soft); max-width: 75ch; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 18px 0; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 12px 16px; } .tile b { display: block; font-size: 1.4rem; font-variant-numeric: tabular-nums; }
.tile span, .caption { color: var(--soft); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
section { padding: 16px 18px; min-width: 0; overflow: hidden; } section.wide { grid-column: 1 / -1; }
section:has(> .facts) { align-self: start; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { text-align: right; padding: 5px 12px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
tr.total td { font-weight: 600; } tr:last-child td { border-bottom: 0; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts td:first-child { color: var(--soft); white-space: nowrap; width: 1%; }
fieldset { border: 0; margin: 0 0 16px; padding: 0; display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
legend { float: left; padding: 0; margin-right: 6px; color: var(--soft); }
fieldset label { border: 1px solid var(--line); border-radius: 999px; padding: 5px 14px; background: var(--card); }
fieldset label { cursor: pointer; } fieldset label:has(:checked) { border-color: var(--accent); color: var(--accent); }
fieldset input { accent-color: var(--accent); }
footer { color: var(--soft); font-size: .85rem; margin-top: 22px; }
@media (max-width: 860px) { .cards { grid-template-columns: minmax(0, 1fr); } main { padding: 18px 12px 40px; } }
@media (max-width: 860px) { section { padding: 14px 12px; } h1 { font-size: 1.35rem; } }
"""

SCRIPT = """
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
"""
