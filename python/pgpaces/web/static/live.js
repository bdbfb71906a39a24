"use strict";
// A trial as it runs, by server-sent events: the whole series, then each second. The browser keeps
// the rows; a reconnect says how many it has.
const root = document.getElementById("live");
const at = Object.fromEntries(root.dataset.columns.split(" ").map((name, index) => [name, index]));
const byId = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const short = (value, digits = 3) => value === null || value === undefined || Number.isNaN(value)
  ? "–" : Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 3 });
const sum = (list, value) => list.reduce((total, each) => total + value(each), 0);
const outcomes = ["on_time", "late", "skipped", "failed", "unfinished"];
const missedOf = (row) => row[at.late] + row[at.skipped] + row[at.failed] + row[at.unfinished];
const shareOf = (row) => {
  const known = sum(outcomes, (name) => row[at[name]]);
  return known ? (100 * missedOf(row)) / known : null;
};

// --- charts: title, unit, series (name, color, value of a row, dash) ---
const CHARTS = [
  ["Load", "tx/s", [["rate", "line1", (row) => row[at.due], [6, 4]], ["throughput", "line0", (row) => row[at.throughput]]]],
  ["Latency", "ms", [["p50", "line2", (row) => row[at.p50]], ["p95", "line0", (row) => row[at.p95]], ["p99", "line1", (row) => row[at.p99]]]],
  ["Missed", "%", [["missed", "line1", shareOf]]],
  ["Lag of the generator", "ms", [["p99 dispatch lag", "line3", (row) => row[at.dispatch_lag]]]],
  ["CPU of the generator", "%", [["busiest thread", "line4", (row) => 100 * row[at.generator_cpu]]]],
  ["Start after due, with the wait for a client", "ms", [["p99", "line3", (row) => row[at.lag_p99]]]],
  ["In flight", "transactions", [["in flight", "line0", (row) => row[at.in_flight]], ["due and not done", "line1", (row) => row[at.backlog], [6, 4]]]],
];
// Of the machine: by second, what is known at this moment.
const on = Object.fromEntries(root.dataset.machine.split(" ").map((name, index) => [name, index]));
let machine = new Map();
const of = (name) => (row) => machine.get(row[at.second])?.[on[name]] ?? null;
// Hidden while they are empty: of a server without monitors, of a generator on the server's machine.
const MONITORED = [
  ["Generator's machine", "%", [["CPU", "line0", of("generator_busy")], ["I/O wait", "line1", of("generator_iowait")], ["steal", "line2", of("generator_steal")]]],
  ["Server's machine", "%", [["CPU", "line0", of("cpu_busy")], ["I/O wait", "line1", of("cpu_iowait")], ["steal", "line2", of("cpu_steal")], ["busiest disk", "line3", of("disk_busy"), [6, 4]]]],
  ["Active sessions by what they wait for", "sessions", [["CPU or run queue", "line0", of("sessions_cpu")], ["IO", "line1", of("sessions_io")], ["LWLock", "line2", of("sessions_lwlock")], ["Lock", "line3", of("sessions_lock")], ["other", "line4", of("sessions_other"), [6, 4]]]],
];
CHARTS.push(...MONITORED);
let rows = [];
let paused = false;
let limits = [];
let events = [];
let measured = null;
let plots = [];

const columnsOf = (series) => [rows.map((row) => row[at.second]), ...series.map(([, , value]) => rows.map(value))];
const limitsOf = (title) => title === "Latency" ? limits : [];
const captionOf = (title, unit) => [`${title}, ${unit}`, ...limitsOf(title).map((ms) => `limit ${short(ms)} ms`)].join("; ");
const marks = (title) => ({
  hooks: {
    draw: [(plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.strokeStyle = color("alarm");
      ctx.setLineDash([4, 4]);
      const line = (x1, y1, x2, y2) => { ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x2, y2); ctx.stroke(); };
      for (const ms of limitsOf(title)) {
        const y = plot.valToPos(ms, "y", true);
        if (y >= bbox.top && y <= bbox.top + bbox.height) line(bbox.left, y, bbox.left + bbox.width, y);
      }
      ctx.strokeStyle = color("muted");
      const x = plot.valToPos(0, "x", true);
      if (rows.length && rows[0][at.second] < 0 && x > bbox.left) line(x, bbox.top, x, bbox.top + bbox.height);
      ctx.setLineDash([1, 3]);
      ctx.fillStyle = color("muted");
      ctx.textAlign = "left";
      ctx.font = `${11 * devicePixelRatio}px sans-serif`;
      events.forEach(({ second }, index) => {
        const x = plot.valToPos(second, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) return;
        line(x, bbox.top, x, bbox.top + bbox.height);
        ctx.fillText(`${index + 1}`, x + 2 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
      });
      ctx.restore();
    }],
  },
});
// Charts out of sight are made and drawn when they come into it.
const visible = new Set();
const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) visible[isIntersecting ? "add" : "delete"](target);
  if (!paused) drawCharts();
});
const build = () => {
  const holder = byId("charts");
  sight.disconnect();
  visible.clear();
  for (const { plot } of plots) plot?.destroy();
  holder.replaceChildren();
  plots = CHARTS.map((chart) => {
    const [title, unit, series] = chart;
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = captionOf(title, unit);
    const place = document.createElement("div");
    place.className = "plot";
    place.tabIndex = 0;
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${title} over time; the last 20 seconds are in the table below`);
    figure.append(caption, place);
    holder.append(figure);
    sight.observe(place);
    const each = { title, series, place, plot: null, tellLimits: () => { caption.textContent = captionOf(title, unit); }, hides: MONITORED.includes(chart) && figure };
    place.addEventListener("keydown", (event) => {
      if (!each.plot) return;
      if (zoom(each.plot, event.key)) event.preventDefault();
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !rows.length) return;
      event.preventDefault();
      const index = Math.min(rows.length - 1, Math.max(0, (each.plot.cursor.idx ?? rows.length) + step));
      each.plot.setCursor({ left: each.plot.valToPos(rows[index][at.second], "x"), top: 10 });
    });
    return each;
  });
};
// A chart that was not drawn yet has no scale.
const isZoomed = ({ scales: { x }, data: [seconds] }) => typeof x.min === "number" && (x.min > seconds[0] || x.max < seconds.at(-1));
// view: the part of the time that is shown, if it is not the whole.
const make = ({ title, series, place }, view) => {
  const axis = { stroke: color("muted"), grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("grid") }, font: "12px sans-serif" };
  const plot = new uPlot({
    width: place.clientWidth || 480,
    height: 220,
    cursor: { sync: { key: "time" }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { range: (_, low, high) => [0, 1.1 * Math.max(high, ...limitsOf(title)) || 1] } },
    axes: [{ ...axis, values: (_, ticks) => ticks.map((each) => `${each} s`) }, { ...axis, size: 56 }],
    series: [{ label: "second" }, ...series.map(([label, name, , dash]) => ({
      label, stroke: color(name), width: 1.6, dash, spanGaps: false, points: { show: false },
      value: (_, value) => short(value),
    }))],
    plugins: [marks(title)],
  }, columnsOf(series), place);
  if (view) plot.setScale("x", view);
  return plot;
};
// + and - zoom around the cursor, or the middle; 0 shows the whole time.
const zoom = (plot, key) => {
  const factor = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity }[key];
  if (!factor || !rows.length) return false;
  const [first, last] = [rows[0][at.second], rows.at(-1)[at.second]];
  const { min, max } = plot.scales.x;
  const middle = plot.data[0][plot.cursor.idx] ?? (min + max) / 2;
  const low = Math.max(first, middle - factor * (middle - min));
  const high = Math.min(last, middle + factor * (max - middle));
  for (const each of plots) each.plot?.setScale("x", { min: factor === Infinity ? first : low, max: factor === Infinity ? last : high });
  return true;
};
const resize = () => plots.forEach(({ plot, place }) => plot?.setSize({ width: place.clientWidth, height: 220 }));
new ResizeObserver(resize).observe(byId("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);

// --- numbers ---
const cell = (kind, text, scope) => {
  const element = document.createElement(kind);
  element.textContent = text;
  if (scope) element.scope = scope;
  return element;
};
const tile = (name, value) => {
  const box = document.createElement("div");
  box.append(cell("dt", name), cell("dd", value));
  return box;
};
const tell = () => {
  const newest = rows.slice(-5);
  const last = rows.at(-1);
  const known = sum(outcomes, (name) => measured[name]);
  const missed = known - measured.on_time;
  const mean = (name) => newest.length ? sum(newest, (row) => row[at[name]]) / newest.length : NaN;
  byId("tiles").replaceChildren(
    tile("due", measured.due.toLocaleString("en")),
    tile("missed", known ? `${short((100 * missed) / known)}% (${missed.toLocaleString("en")})` : "–"),
    tile("rate, last 5 s", `${short(mean("due"))} tx/s`),
    tile("throughput, last 5 s", `${short(mean("throughput"))} tx/s`),
    tile("p95, last second", `${short(last?.[at.p95])} ms`),
    tile("failed", measured.failed.toLocaleString("en")),
  );
  const second = last?.[at.second];
  byId("clock").textContent = last === undefined ? "" : second < 0 ? `warm-up, ${-second} s left` : `second ${second + 1}`;
  const [head, body] = [byId("seconds").tHead.rows[0], byId("seconds").tBodies[0]];
  if (!head.cells.length) head.append(...[...Object.keys(at), ...Object.keys(on).slice(1)].map((name) => cell("th", name.replaceAll("_", " "), "col")));
  body.replaceChildren(...rows.slice(-20).reverse().map((row) => {
    const line = document.createElement("tr");
    const values = [...row.slice(1), ...Object.keys(on).slice(1).map((name) => of(name)(row))];
    line.append(cell("th", `${row[0]}`, "row"), ...values.map((value) => cell("td", value === null ? "–" : `${value}`)));
    return line;
  }));
};
const table = (id, lines) => {
  byId(id).hidden = !lines.length;
  byId(id).querySelector("tbody").replaceChildren(...lines.map(([head, ...others]) => {
    const line = document.createElement("tr");
    line.append(cell("th", head, "row"), ...others.map((text) => cell("td", text)));
    return line;
  }));
};
const tellErrors = (failed, texts) => table("errors", Object.keys(failed).map(
  (state) => [state, texts[state] ?? "–", failed[state].toLocaleString("en")]));
const tellBlocked = (blocked) => table("blocked", blocked.map((one) => [
  one.waiting, `${one.event} ${one.mode}`, `${one.blocking} (${one.state})`, one.statement, `${one.samples}`,
  one.first_s === one.last_s ? `${one.first_s}` : `${one.first_s} to ${one.last_s}`]));
const tellMarks = () => {
  byId("marks").hidden = !events.length;
  byId("marks").querySelector("span").textContent = events.map(({ second, text }, index) => `${index + 1} at ${second} s: ${text}`).join("; ");
};
const tellState = (state) => {
  byId("state").textContent = state;
  byId("state").className = `chip ${{ running: "running", finished: "ended", connecting: "running" }[state] ?? "invalid"}`;
};
const drawCharts = (every = false) => {
  // Before any of them has new data, to which its scale follows later.
  const zoomed = plots.find((each) => each.plot && isZoomed(each.plot));
  const view = zoomed && { min: zoomed.plot.scales.x.min, max: zoomed.plot.scales.x.max };
  for (const each of plots) {
    const { plot, place, series, hides } = each;
    each.tellLimits();
    if (hides) hides.hidden = !series.some(([, , value]) => rows.some((row) => value(row) !== null));
    if (!every && !visible.has(place)) continue;
    if (!plot) {
      if (measured) each.plot = make(each, view);
      continue;
    }
    const whole = !isZoomed(plot);
    plot.setData(columnsOf(series), whole);
    if (!whole) plot.redraw();
  }
};
const draw = () => {
  if (paused || !measured) return;
  drawCharts();
  tell();
};
addEventListener("beforeprint", () => { if (!paused) drawCharts(true); });

// --- events ---
let source = null;
const follow = (id) => {
  source?.close();
  rows = [];
  machine = new Map();
  source = new EventSource(`/events/runs/${encodeURIComponent(id)}`);
  source.addEventListener("message", (event) => {
    const message = JSON.parse(event.data);
    byId("again").hidden = true;
    rows = rows.slice(0, message.at - message.rows.length).concat(message.rows);
    for (const row of message.machine) machine.set(row[0], row);
    ({ limits_ms: limits, measured } = message);
    if (!root.dataset.experiment) tellState(message.state);
    events = message.marks;
    tellErrors(message.failed, message.first_errors);
    tellBlocked(message.blocked);
    tellMarks();
    draw();
    if (message.state === "running") return;
    source.close();
    if (!root.dataset.experiment) ended();
  });
  const own = source;
  source.addEventListener("error", () => {
    if (!root.dataset.experiment) lost();
    reopen(own, () => { if (source === own) follow(id); });
  });
};
// A browser connects again by itself; the page of a load may be gone.
const lost = () => {
  tellState("connecting");
  byId("again").hidden = false;
};
// It does not after an answer that is no stream, such as 503 of the server or 502 of a proxy.
const reopen = (stream, open) => { if (stream.readyState === EventSource.CLOSED) setTimeout(open, 1000); };
const ended = () => {
  byId("again").hidden = false;
  const link = document.createElement("a");
  link.href = location.pathname;
  link.textContent = "Open the report";
  byId("state").after(" ", link);
  byId("stop")?.remove();
};
const watch = (id) => {
  const states = new EventSource(`/events/experiments/${encodeURIComponent(id)}`);
  let [answered, shown] = ["", ""];
  states.addEventListener("error", () => {
    lost();
    reopen(states, () => watch(id));
  });
  states.addEventListener("message", async (event) => {
    const state = JSON.parse(event.data);
    byId("again").hidden = true;
    tellState(state.state);
    byId("running").textContent = state.running.length ? `The running trial; ${state.runs} ended` : `${state.runs} trials`;
    if (state.running.length && state.running[0] !== shown) follow(shown = state.running[0]);
    if (state.state !== "running") {
      states.close();
      ended();
    }
    const known = `${state.runs} ${state.state}`;
    if (known === answered) return;
    answered = known;
    const answer = await fetch(`/experiments/${encodeURIComponent(id)}/answer`);
    if (answer.ok) byId("part").innerHTML = await answer.text();
  });
};

byId("pause").addEventListener("click", () => {
  if (!paused) drawCharts(true);
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  draw();
});
byId("whole").addEventListener("click", () => plots.forEach(({ plot, series }) => plot?.setData(columnsOf(series), true)));
byId("stop")?.addEventListener("click", async () => {
  if (!confirm("Stop the load? What was measured stays, as with Ctrl-C.")) return;
  const answer = await fetch("/stop", { method: "POST" });
  byId("stop").textContent = answer.ok ? "Stopping" : "Not allowed";
});
build();
if (root.dataset.experiment) watch(root.dataset.experiment);
else follow(root.dataset.run);
