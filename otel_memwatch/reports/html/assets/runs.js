"use strict";
// Page of many runs: a chart of each group, and a table that sorts and filters. Text is set with textContent only.
(() => {
const runs = data.runs, COUNT = data.count, FIRST = 12, ROWS = 60;
const word = (column, run) => column.words[column.at[run]];
const figures = new Map(data.figures.map((one) => [one.name, one]));
let figure = data.figures[0], byTime = true, fromZero = false, chosen = null;
const SANS = "system-ui, sans-serif", LINE = 13, LABELS = 3, Y_AXIS = 74, SIDE = 36;
const charts = [], live = element("p", { "aria-live": "polite", class: "quiet-voice" });

const members = new Map();
for (let run = 0; run < COUNT; run++) {
  const name = word(runs.group, run);
  if (!members.has(name)) members.set(name, []);
  members.get(name).push(run);
}
const when = (seconds) => new Date(seconds * 1000).toLocaleString("sv");
function show(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "By") return size(value);
  if (unit === "s") return duration(value);
  return unit === "1" ? `${(100 * value).toFixed(1)} %` : String(value);
}
// The value of a run in words; of a range both bounds.
function inWords(one, run) {
  if (one.values[run] === null) return "-";
  if (!one.high) return show(one.values[run], one.unit);
  const low = one.low[run], high = one.high[run];
  if (exact(run) || low === null && high === null) return show(one.values[run], one.unit);
  return peakFigure([one.values[run], "interval", low, high]);
}
const exact = (run) => word(data.certainty, run) === "exact";

// -- charts

function columns(list) {
  const places = list.filter((run) => figure.values[run] !== null), xs = [];
  places.forEach((run, i) => xs.push(byTime ? Math.max(runs.started[run], i ? xs[i - 1] + 1e-3 : -Infinity) : i + 1));
  const value = (run) => figure.values[run];
  const bound = (column) => places.map((run) => (!column ? value(run) : exact(run) ? value(run) : column[run] ?? value(run)));
  const line = (column, other) => places.map((run) => (figure.name === "memory" && column[run] !== other?.[run] ? column[run] : null));
  return { places, xy: [xs, bound(figure.low), bound(figure.high), places.map(value), line(runs.limit), line(runs.asked, runs.limit)] };
}

function scaleOf([, low, high, , ...lines]) {
  const known = (list) => list.filter((v) => v !== null);
  let least = Math.min(...known(low)), most = Math.max(...known(high));
  // A limit far above would flatten the curve.
  for (const v of lines.flatMap(known)) if (v < 1.5 * most) { most = Math.max(most, v); least = Math.min(least, v); }
  const room = Math.max((most - least) * 0.15, most * 0.05, 1e-9);
  return [fromZero ? 0 : Math.max(0, least - room), most + room];
}

function splitsOf(least, most) {
  if (figure.unit !== "By") { const step = niceStep(most - least, 6); return steps(least, most, step); }
  const scale = 1024 ** power(most), step = niceStep((most - least) / scale, 6) * scale;
  return steps(least, most, step);
}
function steps(least, most, step) {
  const found = [];
  for (let v = Math.ceil(least / step) * step; v <= most; v += step) found.push(v);
  return found;
}

function marks(u, places) {
  const c = u.ctx, ratio = devicePixelRatio, [xs, low, high, value] = u.data;
  c.save();
  c.beginPath();
  c.rect(u.bbox.left - 6 * ratio, u.bbox.top, u.bbox.width + 12 * ratio, u.bbox.height);
  c.clip();
  c.setLineDash([]);   // a dashed series leaves its pattern
  const many = places.length > 400, radius = (many ? 1.6 : 3) * ratio;
  places.forEach((run, i) => {
    const x = u.valToPos(xs[i], "x", true), y = u.valToPos(value[i], "y", true), bad = runs.bad[run];
    const width = high[i] - low[i];
    c.strokeStyle = c.fillStyle = colour(bad ? "bad" : "needed");
    c.lineWidth = 1.4 * ratio;
    if (width > 0 && !many) {
      c.beginPath(); c.moveTo(x, u.valToPos(low[i], "y", true)); c.lineTo(x, u.valToPos(high[i], "y", true)); c.stroke();
    }
    c.beginPath();
    if (bad) {
      const r = 4 * ratio;
      c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x + r, y - r); c.lineTo(x - r, y + r); c.stroke();
      if (bad === 2) { c.beginPath(); c.arc(x, y, r * 1.7, 0, 7); c.stroke(); }
      return;
    }
    c.arc(x, y, radius, 0, 7);
    // A hollow point: the value is a range.
    if (figure.high && !exact(run) && !many) { c.fillStyle = colour("page"); c.fill(); c.stroke(); } else c.fill();
    if (run === chosen) { c.beginPath(); c.arc(x, y, 7 * ratio, 0, 7); c.strokeStyle = colour("accent"); c.stroke(); }
  });
  c.restore();
}

// The changes of the chart, with places for their labels above the plot. Labels that find none are in the table only.
function layOut(places, xs, width) {
  const c = document.createElement("canvas").getContext("2d"), rows = [], [least, most] = rangeOf(xs);
  c.font = `11px ${SANS}`;
  const found = [];
  for (const one of data.changes) {
    const from = places.indexOf(one.last), to = places.indexOf(one.first);
    if (one.figure !== figure.name || from < 0 || to < 0) continue;
    const middle = width * ((xs[from] + xs[to]) / 2 - least) / (most - least), room = c.measureText(one.text).width + 8;
    const begin = Math.max(0, Math.min(middle > width / 2 ? middle - room : middle, width - room));
    let row = 0;
    while ((rows[row] ?? []).some(([from, to]) => begin < to && from < begin + room)) row++;
    if (row < LABELS) (rows[row] ??= []).push([begin, begin + room]);
    found.push({ ...one, from, to, begin, end: begin + room, row });
  }
  return { found, height: LINE * rows.length };
}
// A step as a line with its size between two runs; a drift as a line from its first run to its last.
function drawChanges(u, { found, height }) {
  const c = u.ctx, ratio = devicePixelRatio, xs = u.data[0], { top, left } = u.bbox;
  c.save();
  c.setLineDash([]);
  c.font = `${11 * ratio}px ${SANS}`;
  c.textBaseline = "top";
  c.textAlign = "left";
  for (const one of found) {
    c.strokeStyle = c.fillStyle = colour(one.text.startsWith("-") ? "good" : "bad");
    c.lineWidth = 1.5 * ratio;
    const a = u.valToPos(xs[one.from], "x", true), b = u.valToPos(xs[one.to], "x", true), label = top + (LINE * one.row - height) * ratio;
    c.beginPath();
    if (one.step) { c.moveTo((a + b) / 2, one.row < LABELS ? label : top); c.lineTo((a + b) / 2, top + u.bbox.height); }
    else { c.moveTo(a, u.valToPos(u.data[3][one.from], "y", true)); c.lineTo(b, u.valToPos(u.data[3][one.to], "y", true)); }
    c.stroke();
    if (one.row < LABELS) c.fillText(one.text, left + (one.begin + 4) * ratio, label);
  }
  c.restore();
}
const rangeOf = (xs) => { const pad = (xs[xs.length - 1] - xs[0] || 1) * 0.03; return [xs[0] - pad, xs[xs.length - 1] + pad]; };

// Times like those of the tables; a new day has its date.
function timesOf(found, step) {
  return found.map((v, i) => {
    const [day, time] = when(v).split(" ");
    if (step >= 86400) return day;
    const text = step >= 60 ? time.slice(0, 5) : time;
    return i && when(found[i - 1]).startsWith(day) ? text : `${text}\n${day}`;
  });
}
// On an axis of runs, a run has the name of its commit, or its number.
const label = (run) => (run === undefined ? "" : word(runs.commit, run) || String(run + 1));

function draw(card, list) {
  const made = columns(list), { places, xy } = made, { plot, about } = card;
  if (card.u) { card.u.destroy(); charts.splice(charts.indexOf(card.u), 1); card.u = null; }
  plot.replaceChildren();
  if (!places.length) { about.textContent = `No ${figure.words} known.`; return; }
  const [least, most] = scaleOf(xy);
  const last = places[places.length - 1];
  const found = data.changes.filter((one) => one.figure === figure.name && places.includes(one.first)).map((one) => one.text);
  about.textContent = [`${list.length} runs, latest ${inWords(figure, last)}`, found.length ? `changes ${found.join(", ")}` : ""].filter(Boolean).join("; ");
  const line = { stroke: () => colour("line"), width: 1 }, none = { stroke: null, width: 0, points: { show: false } };
  const dashed = (shade) => ({ stroke: () => colour(shade), width: 1.4, dash: [6, 4], points: { show: false }, spanGaps: true });
  const width = Math.max(220, plot.clientWidth), changes = layOut(places, xy[0], width - Y_AXIS - SIDE);
  const font = { font: FONT, stroke: () => colour("soft") };
  const u = new uPlot({
    width, height: 190 + changes.height, padding: [8 + changes.height, SIDE, 0, 0], legend: { show: false },
    scales: { x: { time: byTime, range: () => rangeOf(xy[0]) }, y: { range: () => [least, most] } },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 8, width: 1.5, fill: () => colour("page") } },
    series: [{}, none, none, { stroke: () => colour("needed-faint"), width: 1, points: { show: false } }, dashed("limit"), dashed("accent")],
    bands: [{ series: [2, 1], fill: () => colour("needed-band") }],
    axes: [{ ...font, grid: { show: false }, ticks: { ...line, size: 4 }, space: 80, values: (_, found, at, space, step) => (byTime ? timesOf(found, step) : found.map((v) => label(places[v - 1]))) },
      { ...font, grid: line, ticks: { show: false }, size: Y_AXIS, splits: () => splitsOf(least, most), values: (_, found) => found.map((v) => show(v, figure.unit)) }],
    hooks: { draw: [(self) => { drawChanges(self, changes); marks(self, places); }] },
  }, xy, plot);
  u.over.addEventListener("click", () => { if (u.cursor.idx !== null && u.cursor.idx !== undefined) choose(places[u.cursor.idx], card); });
  u.over.setAttribute("aria-hidden", "true");
  u.places = places;
  card.u = u;
  card.changes = changes.found;
  charts.push(u);
}

function choose(run, card) {
  chosen = run;
  for (const u of charts) u.redraw(false);
  const facts = element("dl", { class: "facts" });
  const fact = (label, text) => { if (text) facts.append(element("dt", {}, label), element("dd", {}, text)); };
  fact("run", link(run));
  fact("started", when(runs.started[run]));
  fact("end", word(runs.end, run));
  for (const one of data.figures) if (one.values[run] !== null) fact(one.words, inWords(one, run) + (one.name === "memory" ? certaintyOf(one, run) : ""));
  fact("limit", runs.limit[run] === null ? "" : size(runs.limit[run]));
  fact("request", runs.asked[run] === null ? "" : size(runs.asked[run]));
  fact("commit", [word(runs.commit, run), word(runs.subject, run)].filter(Boolean).join(" "));
  fact("tags", word(runs.tags, run));
  fact("command", word(runs.command, run));
  fact("host", word(runs.host, run));
  card.detail.replaceChildren(facts);
  live.textContent = `${runs.run[run]}, ${figure.words} ${inWords(figure, run)}`;
}
function certaintyOf(one, run) {
  const text = certaintyWord([one.values[run], word(data.certainty, run), one.low ? one.low[run] : null, one.high ? one.high[run] : null]);
  return text ? ` (${text})` : "";
}
function link(run, text = runs.run[run]) {
  const to = runs.link[run];   // absent on a redacted page
  // Only relative links: "./" comes first, or it is text.
  return to && to.startsWith("./") ? element("a", { href: to }, text) : text;
}
// The directory of all runs, which the table leaves out.
const parent = (path) => path.slice(0, path.slice(0, -1).lastIndexOf("/") + 1);
const home = runs.run.reduce((shared, path) => { while (!path.startsWith(shared)) shared = parent(shared); return shared; }, parent(runs.run[0]));

function cardOf(name, list) {
  const plot = element("div", { class: "plot" }), about = element("p", { class: "more" }), detail = element("div", { class: "detail" });
  const box = element("div", { class: "chart", tabindex: 0, role: "group", "aria-label": `Chart of ${name}; arrow keys select a run` },
    element("h3", {}, name), about, plot, detail);
  const card = { name, list, box, plot, about, detail, u: null };
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !card.u || event.target !== box) return;
    event.preventDefault();
    const places = card.u.places, at = places.indexOf(chosen);
    choose(places[at < 0 ? places.length - 1 : Math.min(places.length - 1, Math.max(0, at + step))], card);
  });
  return card;
}

// -- table

const TABLE = [
  { title: "run", show: (run) => link(run, runs.run[run].slice(home.length)), key: (run) => runs.run[run] },
  { title: "group", show: (run) => word(runs.group, run), key: (run) => word(runs.group, run) },
  { title: "started", show: (run) => when(runs.started[run]), key: (run) => runs.started[run] },
  { title: "duration", number: true, show: (run) => (figures.has("seconds") ? show(figures.get("seconds").values[run], "s") : "-"), key: (run) => (figures.get("seconds") || { values: [] }).values[run] },
  { title: "memory", number: true, show: (run) => (figures.has("memory") ? inWords(figures.get("memory"), run) : "-"), key: (run) => (figures.get("memory") || { values: [] }).values[run] },
  { title: "end", show: (run) => word(runs.end, run), key: (run) => word(runs.end, run) },
  { title: "command", show: (run) => word(runs.command, run), key: (run) => word(runs.command, run) },
];
function table(holder) {
  let order = TABLE[2], down = true, words = "", shown = ROWS;
  const body = element("tbody"), state = element("p", { class: "more", "aria-live": "polite" });
  const more = element("button", { type: "button", class: "plain", on: { click: () => { shown += 500; fill(); } } });
  const search = element("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", on: { input: () => { words = search.value.toLowerCase(); shown = ROWS; fill(); } } });
  const heads = TABLE.map((one) => element("th", { scope: "col", class: one.number ? "number" : null },
    element("button", { type: "button", on: { click: () => { down = order === one ? !down : Boolean(one.number); order = one; fill(); } } }, one.title)));
  const text = (run) => [runs.run[run], word(runs.group, run), word(runs.command, run), word(runs.end, run), word(runs.commit, run), word(runs.subject, run), word(runs.tags, run), word(runs.host, run)].join("\n").toLowerCase();
  const all = Array.from({ length: COUNT }, (_, run) => run);
  function fill() {
    const found = (words ? all.filter((run) => text(run).includes(words)) : all).slice().sort((a, b) => {
      const x = order.key(a), y = order.key(b);
      if (x === null || x === undefined || y === null || y === undefined) return (x === null || x === undefined) - (y === null || y === undefined);
      const less = typeof x === "string" ? x.localeCompare(y) : x - y;
      return down ? -less : less;
    });
    TABLE.forEach((one, i) => (one === order ? heads[i].setAttribute("aria-sort", down ? "descending" : "ascending") : heads[i].removeAttribute("aria-sort")));
    body.replaceChildren(...found.slice(0, shown).map((run) => element("tr", { class: runs.bad[run] ? "bad" : null },
      ...TABLE.map((one) => element("td", { class: one.number ? "number" : null, "data-label": one.number ? one.title : null }, one.show(run))))));
    more.hidden = found.length <= shown;
    more.textContent = `${found.length - shown} more`;
    state.textContent = words ? `${found.length} of ${COUNT} runs shown.` : "";
  }
  holder.replaceChildren(element("div", { class: "tools" }, search),
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs" }, element("table", { class: "stacked" }, element("thead", {}, element("tr", {}, ...heads)), body)), more, state);
  fill();
}

// The first run of a change links to its page.
function linkChanges() {
  const at = [...document.querySelectorAll("#changes thead tr > *")].findIndex((one) => one.textContent === "first run");
  document.querySelectorAll("#changes tbody tr").forEach((row, i) => {
    const { step, first, last } = data.changes[i], cell = row.cells[at];
    cell.replaceChildren(link(step ? first : last, cell.textContent));
  });
}

// -- start

function start() {
  const holder = $("charts"), grid = element("div", { class: "many" });
  const list = [...members].sort((a, b) => b[1].length - a[1].length || a[0].localeCompare(b[0])).filter(([, found]) => found.length > 1);
  const cards = list.map(([name, found]) => cardOf(name, found));
  const again = () => cards.forEach((card) => { if (card.seen) draw(card, card.list); });
  const seen = new IntersectionObserver((found) => found.forEach(({ isIntersecting, target }) => {
    const card = cards.find((one) => one.box === target);
    if (!isIntersecting || card.seen) return;
    card.seen = true;
    draw(card, card.list);
  }), { rootMargin: "300px" });
  cards.forEach((card, i) => { card.box.hidden = i >= FIRST; grid.append(card.box); seen.observe(card.box); });
  const select = element("select", { "aria-label": "Figure", on: { change: () => { figure = figures.get(select.value); again(); } } },
    ...data.figures.map((one) => element("option", { value: one.name }, one.words)));
  const toggle = (label, act) => {
    const button = element("button", { type: "button", "aria-pressed": "false", on: { click: () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on)); act(on); again();
    } } }, label);
    return button;
  };
  const all = element("button", { type: "button", hidden: cards.length <= FIRST, on: { click: () => { cards.forEach((card) => { card.box.hidden = false; }); all.hidden = true; } } }, `Show all ${cards.length} groups`);
  const legend = element("p", { class: "more" }, "Filled point: exact. Hollow point with a bar: range. Cross: failed; with a ring: killed for lack of memory. Dashed lines: limit (orange), request (blue). Solid line: a step or a drift. Click a point for its run.");
  if (cards.length && figure) {
    holder.replaceChildren(element("div", { class: "tools" }, select, toggle("One step per run", (on) => { byTime = !on; }), toggle("From zero", (on) => { fromZero = on; })), legend, grid, all, live);
  }
  table($("runs"));
  linkChanges();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((u) => u.redraw(false)));
  matchMedia("print").addEventListener("change", () => cards.forEach((card) => { if (card.seen = !card.box.hidden) draw(card, card.list); }));
  window.memwatch = { charts, cards, choose: (run) => choose(run, cards[0]) };
  document.documentElement.setAttribute("data-ready", "");
}
start();
})();
