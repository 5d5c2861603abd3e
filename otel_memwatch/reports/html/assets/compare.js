"use strict";
// Page of a comparison: both memory curves on one time axis. Text is set with textContent only.
(() => {
const NAMES = ["base", "head"], COLOURS = ["sum", "needed"], sides = data.sides || [];
const holder = $("charts"), live = element("p", { "aria-live": "polite", class: "quiet-voice" });
let u = null, shift = [0, 0];

// The value of a run at a time of the axis; null outside the run.
function at(side, time) {
  const { times, bytes } = sides[side], t = time - shift[side];
  if (!times.length || t < 0 || t > sides[side].seconds) return null;
  let low = 0, high = times.length - 1;
  while (low < high) { const middle = (low + high) >> 1; if (times[middle] < t) low = middle + 1; else high = middle; }
  return bytes[low];
}
function joined() {
  const xs = [...new Set(sides.flatMap((side, i) => side.times.map((t) => Number((t + shift[i]).toFixed(4)))))].sort((a, b) => a - b);
  return [xs, ...sides.map((_, side) => xs.map((x) => at(side, x)))];
}
const inWords = (time) => `${duration(time)}: ${NAMES.map((name, side) => { const v = at(side, time); return `${name} ${v === null ? "not running" : size(v)}`; }).join(", ")}`;

function draw(plot, values) {
  if (u) u.destroy();
  const xy = joined(), top = Math.max(...sides.flatMap((side) => side.bytes), 4096) * 1.1, splits = sizeSplits(top);
  const first = xy[0][0], last = xy[0][xy[0].length - 1], line = { stroke: () => colour("line"), width: 1 };
  const font = { font: FONT, stroke: () => colour("soft") };
  u = new uPlot({
    width: Math.max(240, plot.clientWidth), height: innerWidth < 600 ? 240 : 320, padding: [8, RIGHT, 0, 0], legend: { show: false },
    scales: { x: { time: false, range: () => [Math.min(0, first), last || 1] }, y: { range: () => [0, top] } },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7, width: 1.5, fill: () => colour("page") } },
    series: [{}, ...NAMES.map((name, i) => ({ label: name, stroke: () => colour(COLOURS[i]), width: 1.8, spanGaps: false, points: { show: xy[0].length < 3, size: 5 }, dash: i ? undefined : [7, 3] }))],
    axes: [{ ...font, grid: { show: false }, ticks: { ...line, size: 4 }, space: 80, values: (_, found) => found.map((v) => duration(v)) },
      { ...font, grid: line, ticks: { show: false }, size: AXIS + 6, splits: () => splits.found, values: (_, found) => found.map(splits.label) }],
    hooks: { setCursor: [(self) => {
      const place = self.cursor.idx;
      values.forEach((value, i) => { const v = place === null || place === undefined ? null : self.data[i + 1][place]; value.textContent = v === null || v === undefined ? "" : size(v); });
    }] },
  }, xy, plot);
  u.over.setAttribute("aria-hidden", "true");
}

function start() {
  if (!holder || sides.length !== 2) return;
  const plot = element("div", { class: "plot" }), values = NAMES.map(() => element("span", { class: "value" }));
  const legend = element("ul", { class: "legend" }, ...NAMES.map((name, i) => {
    const swatch = element("span", { class: "swatch" + (i ? "" : " dashed") });
    swatch.style.setProperty("--swatch", `var(--${COLOURS[i]})`);
    return element("li", {}, element("span", { class: "entry" }, swatch, name), values[i]);
  }));
  const select = element("select", { "aria-label": "Align the runs", on: { change: () => {
    const one = data.align[Number(select.value)];
    shift = one ? [Math.max(0, one[2] - one[1]), Math.max(0, one[1] - one[2])] : [0, 0];
    draw(plot, values);
  } } }, element("option", { value: "-1" }, "aligned at the start"), ...data.align.map((one, i) => element("option", { value: String(i) }, `aligned at ${one[0]}`)));
  const box = element("div", { class: "chart", tabindex: 0, role: "group", "aria-label": `Chart of ${data.label} of both runs; arrow keys move the cursor` },
    element("div", { class: "head" }, element("h3", {}, data.label), legend), plot);
  let place = -1;
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !u) return;
    event.preventDefault();
    const xs = u.data[0], jump = Math.max(1, Math.round(xs.length / 60));
    place = Math.min(xs.length - 1, Math.max(0, place < 0 ? 0 : place + step * jump));
    u.setCursor({ left: u.valToPos(xs[place], "x"), top: 0 });
    live.textContent = inWords(xs[place]);
  });
  holder.append(element("div", { class: "tools" }, select), box, live);
  draw(plot, values);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(plot, values); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => u.redraw(false));
  window.memwatch = { chart: () => u, align: (i) => { select.value = String(i); select.dispatchEvent(new Event("change")); } };
}
start();
document.documentElement.setAttribute("data-ready", "");
})();
