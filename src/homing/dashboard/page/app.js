"use strict";
// Frames come once a second over SSE (first the last five minutes, then one at a time); every
// chart keeps its own columns and the tables are redrawn from the newest frame.

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
// All children of a histogram metric as one: rates add up, the worst time is shown.
function worst(children) {
  const all = Object.values(children || {}).filter((one) => one[0] > 0);
  if (!all.length) return [0, null, null];
  return [all.reduce((a, b) => a + b[0], 0), Math.max(...all.map((o) => o[1])), Math.max(...all.map((o) => o[2]))];
}

// --- charts ----------------------------------------------------------------------------------

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const CHARTS = {
  "chart-requests": { lines: ["accepted", "answered"], show: count, read: (f) => [sum(f.rates.homing_service_accepted_total), sum(f.rates.homing_service_answered_total)] },
  "chart-latency": { lines: ["median", "99 %"], show: time, read: (f) => worst(f.times.homing_service_request_seconds).slice(1) },
  "chart-push": { lines: ["publications", "deliveries"], show: count, read: (f) => [sum(f.rates.homing_push_publications_total), sum(f.rates.homing_push_deliveries_total)] },
  "chart-match": { lines: ["median", "99 %"], show: time, read: (f) => worst(f.times.homing_push_match_seconds).slice(1) },
  "chart-journal": { lines: ["events", "KiB"], show: count, read: (f) => [sum(f.rates.homing_journal_events_total), sum(f.rates.homing_journal_written_bytes_total) / 1024] },
};

function build(id) {
  const spec = CHARTS[id], box = $(id);
  const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
  const colours = [css("--one"), css("--two")];
  if (spec.plot) spec.plot.destroy();
  spec.data = spec.data || [[], [], []];
  spec.plot = new uPlot({
    width: box.clientWidth || 400, height: 190,
    scales: { y: { range: (u, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
    axes: [axis, { ...axis, size: 64, values: (u, ticks) => ticks.map(spec.show) }],
    series: [{ value: (u, t) => (t ? new Date(t * 1000).toLocaleTimeString() : "–") },
      ...spec.lines.map((label, i) => ({ label, stroke: colours[i], width: 2, dash: i ? [6, 3] : [], value: (u, v) => spec.show(v) }))],
  }, spec.data, box);
}
function chart(frames) {
  for (const spec of Object.values(CHARTS)) {
    for (const frame of frames) {
      const values = spec.read(frame);
      spec.data[0].push(frame.t);
      values.forEach((value, i) => spec.data[i + 1].push(value));
    }
    spec.data = spec.data.map((column) => column.slice(-KEEP));
    spec.plot.setData(spec.data);
  }
}

// --- tables and boxes ------------------------------------------------------------------------

function element(tag, text, attributes) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  return made;
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
    line.append(element("td", none, { colspan: columns.length }));
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  target.replaceChildren(element("caption", caption), top, body);
}
function figures(frame) {
  const g = frame.gauges, r = frame.rates;
  const shown = [
    ["requests a second", count(sum(r.homing_service_accepted_total))],
    ["waiting for a worker", count(sum(g.homing_service_waiting))],
    ["workers", count(sum(g.homing_service_workers))],
    ["publications a second", count(sum(r.homing_push_publications_total))],
    ["deliveries a second", count(sum(r.homing_push_deliveries_total))],
    ["subscribers", count(sum(g.homing_push_subscribers))],
    ["subscriptions", count(sum(g.homing_push_subscriptions))],
    ["journal events a second", count(sum(r.homing_journal_events_total))],
  ];
  $("figures").replaceChildren(...shown.map(([name, value]) => {
    const box = element("div", undefined, { class: "figure" });
    box.append(element("b", value), element("span", name));
    return box;
  }));
}
function topology(nodes) {
  $("nodes").replaceChildren(...nodes.map((node) => {
    const box = element("article", undefined, { class: "node" }), title = element("h3"), list = element("dl");
    title.append(element("span", undefined, { class: "dot " + (node.up ? "good" : "bad") }), document.createTextNode(`${node.role} ${node.name}`));
    for (const [name, value] of Object.entries(node.facts || {})) list.append(element("dt", name), element("dd", String(value)));
    box.append(title, list);
    if (node.load !== undefined) {
      const bar = element("div", undefined, { class: "bar", role: "img", "aria-label": `${Math.round(node.load * 100)} % busy` });
      const fill = element("i");
      fill.style.width = Math.min(100, Math.round(node.load * 100)) + "%";
      bar.append(fill);
      box.append(bar);
    }
    return box;
  }));
}
function tables(frame) {
  const g = frame.gauges, r = frame.rates, top = frame.topology;
  const names = new Set([...Object.keys(g.homing_service_workers || {}), ...Object.keys(r.homing_service_accepted_total || {})]);
  const of = (family, name) => (family || {})[name];
  table("services", "Services", ["service", "workers", "waiting", "requests/s", "median", "99 %"], [...names].sort().slice(0, 200).map((name) => {
    const [, p50, p99] = of(frame.times.homing_service_request_seconds, name) || [];
    return [name || "(any)", count(of(g.homing_service_workers, name) || 0), count(of(g.homing_service_waiting, name) || 0), count(of(r.homing_service_accepted_total, name) || 0), time(p50), time(p99)];
  }), "no service yet: start a worker with `homing worker echo --echo`");
  table("slow", "Slow subscribers", ["client", "behind", "dropped", "policy"], (top.slow || []).map((s) => [s.client, bytes(s.behind), count(s.dropped), s.policy]), "nobody is behind");
  table("selectivity", "Attributes subscribed to", ["attribute", "subscriptions", "selectivity"], (top.attributes || []).map((a) => [a.name, count(a.subscriptions), (100 * a.selectivity).toFixed(2) + " %"]), "no subscription yet");
  table("journals", "Journals", ["node", "segments", "on disk", "last event", "disk free"], (top.journals || []).map((j) => [j.node, count(j.segments), bytes(j.bytes), j.number, bytes(j.free)]), "journals are off");
  table("pipeline", "Last pipeline runs", ["job", "finished", "result"], (top.pipeline || []).map((p) => [p.job, p.finished, p.result]), "no run yet: `homing pipeline ledger`");
}
function show(frames) {
  const frame = frames[frames.length - 1];
  if (!frame) return;
  chart(frames);
  figures(frame);
  topology(frame.topology.nodes || []);
  tables(frame);
  $("light").className = "dot " + (frame.ready ? "good" : "bad");
  $("state").textContent = (frame.ready ? "ready" : "not ready") + " · " + (frame.topology.title || "");
  $("try-note").textContent = frame.trying ? "Trying needs the token that homing printed when it started." : "This page is read-only: start homing with a token to try things here.";
  for (const button of document.querySelectorAll("#try button")) button.disabled = !frame.trying;
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
stream.onmessage = (event) => show(JSON.parse(event.data));
stream.onerror = () => { $("light").className = "dot bad"; $("state").textContent = "the node does not answer; trying again"; };
