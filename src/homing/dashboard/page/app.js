"use strict";
// Once a second over SSE: {history: totals for the charts (first five minutes of them), now: the
// newest frame for everything else}. Every chart keeps its own columns.

const KEEP = 300;
const $ = (id) => document.getElementById(id);
const sum = (children) => Object.values(children || {}).reduce((a, b) => a + b, 0);

function count(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (Math.abs(value) >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (Math.abs(value) >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toString() : value.toFixed(1);
}
function bytes(value) {
  if (value === undefined || value === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) { value /= 1024; step += 1; }
  return (step ? value.toFixed(1) : value) + " " + units[step];
}
function time(seconds) {
  if (!seconds) return "–";
  if (seconds < 1e-3) return Math.round(seconds * 1e6) + " µs";
  return seconds < 1 ? (seconds * 1e3).toFixed(1) + " ms" : seconds.toFixed(2) + " s";
}
function ago(seconds) {
  const past = Math.max(0, Date.now() / 1000 - seconds);
  if (past < 90) return Math.round(past) + " s ago";
  if (past < 5400) return Math.round(past / 60) + " min ago";
  return past < 172800 ? Math.round(past / 3600) + " h ago" : Math.round(past / 86400) + " days ago";
}

// --- charts ----------------------------------------------------------------------------------

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const times = (name) => (f) => { const [rate, median, high] = f.times[name] || [0]; return rate ? [median, high] : [null, null]; };
const rates = (...names) => (f) => names.map((name) => f.rates[name] || 0);
const CHARTS = {
  "chart-requests": { lines: ["accepted", "answered"], show: count, read: rates("homing_service_accepted_total", "homing_service_answered_total") },
  "chart-latency": { lines: ["median", "99 %"], show: time, read: times("homing_service_request_seconds") },
  "chart-push": { lines: ["publications", "deliveries"], show: count, read: rates("homing_push_publications_total", "homing_push_deliveries_total") },
  "chart-deliver": { lines: ["median", "99 %"], show: time, read: times("homing_push_publish_seconds") },
  "chart-journal": { lines: ["events", "not yet durable"], show: count, read: (f) => [f.rates.homing_journal_events_total || 0, f.gauges.homing_journal_lag || 0] },
  "chart-waiting": { lines: ["waiting", "running"], show: count, read: (f) => [f.gauges.homing_service_waiting || 0, f.gauges.homing_service_running || 0] },
};

const clock = (t) => new Date(t * 1000).toLocaleTimeString("en-GB");

// Ticks stand at quarters; a figure's one decimal would call 0.75 and 0.25 0.8 and 0.3.
const mark = (spec, tick) => (!tick ? "0" : spec.show === count && tick < 10 ? String(+tick.toFixed(2)) : spec.show(tick));

function build(id) {
  const spec = CHARTS[id], box = $(id);
  const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
  const colours = [css("--one"), css("--two")];
  if (spec.plot) spec.plot.destroy();
  spec.data = spec.data || [[], [], []];
  spec.plot = new uPlot({
    width: box.clientWidth || 400, height: 190,
    scales: { y: { range: (u, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
    axes: [{ ...axis, space: 90, values: (u, ticks) => ticks.map(clock) }, { ...axis, size: 72, values: (u, ticks) => ticks.map((tick) => mark(spec, tick)) }],
    series: [{ label: "at", value: (u, t) => (t ? clock(t) : "–") },
      ...spec.lines.map((label, i) => ({ label, spanGaps: true, stroke: colours[i], width: 2, dash: i ? [6, 3] : [], value: (u, v) => spec.show(v) }))],
  }, spec.data, box);
}
function chart(history) {
  for (const spec of Object.values(CHARTS)) {
    for (const totals of history) {
      const values = spec.read(totals);
      spec.data[0].push(totals.t);
      values.forEach((value, i) => spec.data[i + 1].push(value));
    }
    spec.data = spec.data.map((column) => column.slice(-KEEP));
    spec.plot.setData(spec.data);
    // Away from the mouse the legend tells the newest values.
    if (spec.plot.cursor.left < 0) spec.plot.setLegend({ idx: spec.data[0].length - 1 });
  }
}

// --- tables and boxes ------------------------------------------------------------------------

function element(tag, text, attributes) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  return made;
}
// What stands between backquotes is something to type.
function prose(tag, text, attributes) {
  const made = element(tag, undefined, attributes);
  made.append(...text.split("`").map((part, i) => (i % 2 ? element("code", part) : part)));
  return made;
}
// What is there becomes what was made: only what differs is touched, so that a text somebody has selected to copy stays selected.
function put(target, ...made) {
  const shell = target.cloneNode(false);
  shell.append(...made);
  become(target, shell);
}
function become(old, made) {
  if (old.nodeName !== made.nodeName) return old.replaceWith(made);
  if (old.nodeType === Node.TEXT_NODE) return void (old.data === made.data || (old.data = made.data));
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const olds = [...old.childNodes], mades = [...made.childNodes];
  mades.forEach((one, i) => (i < olds.length ? become(olds[i], one) : old.append(one)));
  for (const one of olds.slice(mades.length)) one.remove();
}
function table(id, caption, columns, rows, none) {
  const target = $(id), head = element("tr"), body = element("tbody");
  for (const name of columns) head.append(element("th", name, { scope: "col" }));
  for (const row of rows) {
    const line = element("tr");
    for (const cell of row) line.append(element("td", String(cell)));
    body.append(line);
  }
  if (!rows.length) {
    const line = element("tr");
    line.append(prose("td", none, { colspan: columns.length }));
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  put(target, element("caption", caption), top, body);
}
// The median of the busiest service: what most requests of this second met.
function overall(services) {
  const [busiest] = Object.values(services || {}).sort((a, b) => b[0] - a[0]);
  return busiest && busiest[0] ? busiest[1] : 0;
}
function figures(frame) {
  const g = frame.gauges, r = frame.rates;
  const shown = [
    ["requests a second", count(sum(r.homing_service_accepted_total))],
    ["waiting for a worker", count(sum(g.homing_service_waiting))],
    ["workers", count(sum(g.homing_service_workers))],
    ["publications a second", count(sum(r.homing_push_publications_total))],
    ["deliveries a second", count(sum(r.homing_push_deliveries_total))],
    ["subscribers", count(sum(g.homing_push_connected))],
    ["subscriptions", count(sum(g.homing_push_subscriptions))],
    ["median time to answer", time(overall(frame.times.homing_service_request_seconds))],
    ["journal events a second", count(sum(r.homing_journal_events_total))],
  ];
  put($("figures"), ...shown.map(([name, value]) => {
    const box = element("div", undefined, { class: "figure" });
    box.append(element("b", value), element("span", name));
    return box;
  }));
}
function card(node) {
  const box = element("article", undefined, { class: "node" }), title = element("h3"), list = element("dl");
  title.append(element("span", undefined, { class: "dot " + (node.up ? "good" : "bad"), role: "img", "aria-label": node.up ? "up" : "down" }), document.createTextNode(`${node.role} ${node.name}`));
  for (const [name, value] of Object.entries(node.facts || {})) list.append(element("dt", name), element("dd", String(value)));
  box.append(title, list);
  return box;
}
function peer(one) {
  const box = card({ role: "peer", name: one.name, up: one.up, facts: { state: one.up ? "reached" : "not reached", "could take": count(one.free), "holds of ours": count(one.holds) } });
  const busy = one.holds + one.free ? one.holds / (one.holds + one.free) : 0;
  const bar = element("div", undefined, { class: "bar", role: "img", "aria-label": `${Math.round(busy * 100)} % of what it gives us is in use` });
  const fill = element("i");
  fill.style.width = Math.round(busy * 100) + "%";
  bar.append(fill);
  box.append(bar);
  return box;
}
// Matchers around the ring, each an arc as long as its share.
function ring(members) {
  const SVG = "http://www.w3.org/2000/svg", radius = 30, around = 2 * Math.PI * radius;
  const box = element("div", undefined, { class: "ring" }), list = element("ul"), svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 80 80");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "the matchers' ring");
  let turned = 0;
  members.forEach((member, i) => {
    const arc = document.createElementNS(SVG, "circle"), colour = `hsl(${(215 + i * 137) % 360} 60% 55%)`;
    for (const [name, value] of Object.entries({ cx: 40, cy: 40, r: radius, fill: "none", stroke: colour, "stroke-width": 12, "stroke-dasharray": `${member.share * around} ${around}`, "stroke-dashoffset": -turned * around })) arc.setAttribute(name, value);
    turned += member.share;
    svg.append(arc);
    const line = element("li", `${member.name.slice(0, 8)} ${(100 * member.share).toFixed(1)} %`), swatch = element("i");
    swatch.style.background = colour;
    line.prepend(swatch);
    list.append(line);
  });
  box.append(svg, list);
  return box;
}
function topology(top) {
  const of = (role) => (top.nodes || []).filter((node) => node.role === role).map(card);
  const matchers = of("matcher");
  if (matchers.length && (top.ring || []).length) matchers[0].append(ring(top.ring));
  lane("lane-service", [of("broker"), (top.peers || []).map(peer)]);
  lane("lane-push", [matchers, of("dispatcher"), [...of("connector"), ...of("authority")]]);
}
// Cards in the order that a message walks; one column a kind.
function lane(id, columns) {
  put($(id), ...columns.filter((cards) => cards.length).map((cards) => {
    const column = element("div", undefined, { class: "column" });
    column.append(...cards);
    return column;
  }));
}
function tables(frame) {
  const g = frame.gauges, top = frame.topology, answered = frame.times.homing_service_request_seconds || {};
  const names = [...new Set([...Object.keys(g.homing_service_workers || {}), ...Object.keys(answered)])];
  const of = (family, name) => (family || {})[name] || 0;
  const busiest = names.sort((a, b) => of(g.homing_service_waiting, b) - of(g.homing_service_waiting, a) || a.localeCompare(b));
  table("services", "Services, those with the longest queue first", ["service", "workers", "free", "running", "waiting", "waiting bytes", "answers/s", "median", "99 %"], busiest.slice(0, 200).map((name) => {
    const [rate, p50, p99] = answered[name] || [0];
    return [name || "(any)", count(of(g.homing_service_workers, name)), count(of(g.homing_service_free, name)), count(of(g.homing_service_running, name)), count(of(g.homing_service_waiting, name)), bytes(of(g.homing_service_waiting_bytes, name)), count(rate), time(p50), time(p99)];
  }), "no service yet: start a worker with `homing worker echo --echo`");
  table("slow", "Subscribers that are behind, the furthest first", ["client", "connected", "policy", "publications", "bytes"], (top.slow || []).map((s) => [s.client, s.here ? "yes" : "away", s.durable ? "durable, " + s.policy : s.policy, count(s.owed), bytes(s.bytes)]), "nobody is behind");
  const index = top.index || {};
  table("index", "Subscriptions in the index", ["subscriptions", "size", "publications matched", "matches each", "candidates each"], top.index ? [[count(index.subscriptions), bytes(index.bytes), count(index.publications), count(index.matches), count(index.candidates)]] : [], "no matcher here");
  table("selectivity", "Attributes subscribed to", ["attribute", "bounds", "share of publications that pass one"], (top.attributes || []).map((a) => [a.name, count(a.bounds), (100 * a.selectivity).toFixed(2) + " %"]), "no subscription yet: `homing subscribe 'price in 10..20'`");
  table("journals", "Journals", ["node", "segments", "on disk", "last event", "disk free"], (top.journals || []).map((j) => [j.node, count(j.segments), bytes(j.bytes), j.number, bytes(j.free)]), "journals are off");
  table("pipeline", "Last pipeline runs", ["job", "finished", "took", "result"], (top.pipeline || []).map((p) => [p.job, ago(p.finished), p.seconds.toFixed(1) + " s", (p.well ? "" : "✗ ") + p.result]), "no run yet: `homing pipeline ingest`, then `homing pipeline ledger`");
}
function show({ history, now }) {
  chart(history);
  if (!now) return;
  figures(now);
  topology(now.topology);
  tables(now);
  $("light").className = "dot " + (now.ready ? "good" : "bad");
  $("state").textContent = (now.ready ? "ready" : "not ready") + " · " + (now.topology.title || "");
  $("try-note").textContent = now.trying ? "Trying needs the token that homing printed when it started." : "This page is read-only: start homing with a token to try things here.";
  for (const button of document.querySelectorAll("#try button")) button.disabled = !now.trying;
}

// --- trying ------------------------------------------------------------------------------------

async function call(path, value) {
  const answer = await fetch(path, { method: "POST", body: JSON.stringify(value), headers: { "Content-Type": "application/json", Authorization: "Bearer " + $("token").value } });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.message || told.error);
  return told;
}
function form(id, submit) {
  const target = $(id), output = target.querySelector("output");
  target.addEventListener("submit", async (event) => {
    event.preventDefault();
    output.className = "";
    output.textContent = "…";
    try {
      output.textContent = await submit(Object.fromEntries(new FormData(target)));
    } catch (error) {
      output.className = "bad";
      output.textContent = error.message;
    }
  });
}
form("try-request", async (it) => (await call("api/request", it)).body);
form("try-publish", async (it) => {
  const { matched } = await call("api/publish", { attributes: JSON.parse(it.attributes), payload: it.payload });
  return matched === 1 ? "1 subscription matched" : `${matched} subscriptions matched`;
});
let pushes = null;
form("try-subscribe", (it) => new Promise((done, failed) => {
  if (pushes) pushes.close();
  const query = new URLSearchParams({ filter: it.filter, token: $("token").value });
  fetch("api/subscribe?" + query).then(async (answer) => {
    if (!answer.ok) { failed(new Error((await answer.json()).message)); return; }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    pushes = { close: () => reader.cancel() };
    done("subscribed; publish something that fits");
    let rest = "";
    for (let step = await reader.read(); !step.done; step = await reader.read()) {
      const parts = (rest + step.value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) pushed(JSON.parse(part.slice("data: ".length)));
    }
  }).catch(failed);
}));
function pushed(push) {
  if (push.type !== "push") return;
  const list = $("pushes");
  list.prepend(element("li", `${push.payload} ${JSON.stringify(push.attrs)}`));
  while (list.children.length > 50) list.lastChild.remove();
}

// --- start ---------------------------------------------------------------------------------------

function redraw() { for (const id of Object.keys(CHARTS)) build(id); }
redraw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new ResizeObserver(() => {
  for (const [id, spec] of Object.entries(CHARTS)) spec.plot.setSize({ width: $(id).clientWidth, height: 190 });
}).observe($("main"));

const stream = new EventSource("api/stream");
let first = true;
stream.onopen = () => { if (!first) for (const spec of Object.values(CHARTS)) spec.data = [[], [], []]; first = false; };
stream.onmessage = (event) => { document.body.classList.remove("stale"); show(JSON.parse(event.data)); };
stream.onerror = () => { document.body.classList.add("stale"); $("light").className = "dot bad"; $("state").textContent = "the node does not answer; trying again"; };
