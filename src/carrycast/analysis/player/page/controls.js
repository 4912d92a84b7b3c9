// Time, the followed node or event, and all controls.
const $ = (id) => document.getElementById(id);
const SPEEDS = [0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600];
// By default, the whole run plays in about a minute.
let speed = SPEEDS.reduce((best, one) => (Math.abs(Math.log((one * 60) / duration)) < Math.abs(Math.log((best * 60) / duration)) ? one : best));
let time = 0, playing = false, node = -1, event = null, last = 0, drawn = 0;
let network, moments, stages, runs, stale = true;

const memory = () => Math.max(speed * 0.7, duration / 2000);

function seek(to) {
  time = Math.min(Math.max(Number(to) || 0, 0), duration);
  for (const moment of moments) moment.seek(time, memory());
  network.seek(time);
  stale = true;
}

function setPlaying(on) {
  if (on && time >= duration && !header.live) seek(0);
  playing = on;
  last = performance.now();
  $("play").textContent = on ? "❚❚" : "▶";
  $("play").setAttribute("aria-label", on ? "pause" : "play");
}

function setSpeed(to) {
  speed = Math.min(Math.max(Number(to) || 1, 0.01), 1e5);
  if (![...$("speed").options].some((option) => Number(option.value) === speed)) $("speed").add(new Option(`${speed}×`, speed));
  $("speed").value = speed;
  stale = true;
}

function followNode(to) {
  node = Number.isInteger(to) && to >= 0 && to < header.nodes ? to : -1;
  if (node >= 0 && view.fitted) {
    view.scale = stages[0].fit() * 2;
    view.fitted = false;
  }
  if (node < 0) fitView();
  stale = true;
}

function followEvent(id) {
  event = id !== null && runs.some((run) => run.place.has(id)) ? id : null;
  for (const moment of moments) moment.follow(event);
  seek(time);
  drawMarks();
}

// Follow the next or previous event, and go to the time of its publication.
function stepEvent(by) {
  const ids = runs[0].events;
  if (!ids.length) return;
  let place = runs[0].place.get(event);
  if (place === undefined) {
    place = runs[0].published.findIndex((when) => when >= time);
    if (place < 0) place = ids.length - 1;
    if (by < 0) place--;
  } else place += by;
  place = (place + ids.length) % ids.length;
  followEvent(ids[place]);
  seek(runs[0].published[place]);
}

function fitView() {
  Object.assign(view, { x: extent.x + extent.width / 2, y: extent.y + extent.height / 2, scale: Math.min(...stages.map((stage) => stage.fit())), fitted: true });
  stale = true;
}

function resize() {
  for (const stage of stages) stage.resize();
  if (view.fitted) fitView();
  drawMarks();
  // Draw at once: resizing clears a canvas.
  for (const stage of stages) stage.draw(time, memory(), node);
  stale = true;
}

const clockText = (at) => {
  const whole = Math.floor(at), two = (number) => String(number).padStart(2, "0");
  const minutes = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return duration >= 3600 ? `${Math.floor(whole / 3600)}:${minutes}` : duration < 120 ? `${minutes}.${Math.floor((at % 1) * 10)}` : minutes;
};

// Draw below the map when events were published, or when the followed event was delivered.
function drawMarks() {
  const canvas = $("marks"), pen = canvas.getContext("2d"), ratio = Math.min(devicePixelRatio || 1, 2);
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  pen.scale(ratio, ratio);
  // The thumb of a range is 16 pixels wide, and time 0 is below its middle.
  const x = (at) => 8 + ((canvas.clientWidth - 16) * at) / duration;
  runs.forEach((run, row) => {
    const top = runs.length > 1 ? row * 10 : 0, high = runs.length > 1 ? 9 : 19, mark = (at, color, part) => {
      pen.fillStyle = color;
      pen.fillRect(x(at) - 0.75, top + high * (1 - part), 1.5, high * part);
    };
    const place = run.place.get(event);
    if (place === undefined) {
      pen.globalAlpha = run.published.length > 300 ? 0.3 : 0.7;
      for (const at of run.published) mark(at, colors.quiet, 0.6);
    } else {
      for (let i = 0; i < run.time.length; i++)
        if (run.event[i] === place && run.code[i] !== EVICT) mark(run.time[i], run.code[i] === DELIVER ? colors.got : colors.reach, run.code[i] === DELIVER ? 1 : 0.4);
      mark(run.published[place], colors.ink, 1);
    }
    pen.globalAlpha = 1;
  });
}

const whole = (number) => Math.round(number).toLocaleString("en");
// Names of protocols with settings are long: permit a line break after a sign.
const breakable = (text) => escapeText(text).replace(/[_:/=,]/g, "$&<wbr>");
const escapeText = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

function tell() {
  $("clock").textContent = `${clockText(time)} / ${clockText(duration)}`;
  if (document.activeElement !== $("scrub") || playing) $("scrub").value = time;
  const rows = [];
  const row = (name, value, kind = "") => rows.push(`<tr><td class="${kind}">${breakable(name)}</td>${moments.map((moment, i) => `<td>${value(moment, i)}</td>`).join("")}</tr>`);
  const shared = (name, value) => rows.push(`<tr><td>${name}</td><td colspan="${moments.length}">${value}</td></tr>`);
  shared("islands", `${network.islands} <small>and ${network.alone} alone</small>`);
  shared("links", whole(network.linksUp) + (network.linksCut ? ` <small>and ${whole(network.linksCut)} cut by faults</small>` : ""));
  if (event !== null) {
    row("delivered", (moment) => { const [got, wanted] = moment.served(); return moment.event < 0 ? "–" : `${got} of ${wanted}`; });
    row("carried by", (moment) => total(moment.carries));
    row("reached", (moment) => total(moment.reached));
  }
  row("deliveries", (moment) => whole(moment.deliveries));
  row("frames sent", (moment) => whole(moment.frames(time)));
  row("in buffers", (moment) => whole(total(moment.stored)));
  row("most at a node", (moment) => whole(moment.stored.reduce((most, value) => Math.max(most, value), 0)));
  row("drops", (moment) => whole(moment.drops));
  for (const reason of reasonsShown()) row(reason, (moment) => whole(moment.reasons[moment.run.reasons.indexOf(reason)] ?? 0), "reason");
  if (header.live && feed.missed) shared("missed", `${whole(feed.missed)} <small>too fast to be told</small>`);
  if (node >= 0) {
    row(`node ${nodeName(node)} holds`, (moment) => whole(moment.stored[node]));
    shared("its island", network.here[node] ? network.size[network.island[node]] > 1 ? `${network.size[network.island[node]]} nodes` : "none, it is alone" : "away");
  }
  const head = moments.length > 1 ? `<tr><th></th>${runs.map((run) => `<th title="${escapeText(run.label)}">${breakable(run.label)}</th>`).join("")}</tr>` : "";
  $("facts").innerHTML = `<table>${head}${rows.join("")}</table>`;
  tellFollowed();
}

function reasonsShown() {
  const counts = new Map();
  for (const moment of moments) moment.run.reasons.forEach((reason, i) => counts.set(reason, (counts.get(reason) ?? 0) + moment.reasons[i]));
  return [...counts].filter((one) => one[1] > 0).sort((one, other) => other[1] - one[1]).slice(0, 4).map((one) => one[0]);
}

function tellFollowed() {
  const said = [];
  if (event !== null) {
    const run = runs.find((one) => one.place.has(event)), place = run.place.get(event);
    said.push(`<p><b>event ${escapeText(event)}</b> <small>from node ${escapeText(nodeName(run.source[place]))} at ${clockText(run.published[place])}<br>${escapeText(run.attributes[place].slice(0, 200))}</small></p>`);
  }
  if (node >= 0) said.push(`<p><b>node ${escapeText(nodeName(node))}</b></p>`);
  $("following").innerHTML = said.join("") || '<p class="soft">Click a node, or press <b>e</b> for an event, to follow it.</p>';
  const spot = (color, text, ring) => `<span><i style="${ring ? `border:2px solid ${color}` : `background:${color}`}"></i>${text}</span>`;
  $("legend").innerHTML = (event === null
    ? [spot(islandColor(0), islandLegend()), spot(colors.faint, "alone")]
    : [spot(colors.got, "got it, wanted it"), spot(colors.carry, "carries it"), spot(colors.reach, "had it"), spot(colors.want, "wants it", true), spot(colors.faint, "does not have it")]
  ).concat([`<span><b style="color:${colors.drop}">×</b> a drop</span>`, "<span>larger: more in its buffer</span>"], network.cuts.start.length ? [`<span><b style="color:${colors.drop}">┄</b> a link that a fault cuts</span>`] : []).join("");
}

function islandLegend() {
  if (network.islands <= ISLAND_COLORS) return "one color, one island";
  if (network.islands <= ISLAND_SIGNS) return "one color and shape, one island";
  return `${network.islands} islands share ${ISLAND_SIGNS} signs`;
}

function frame(now) {
  if (playing) {
    seek(time + (Math.min(now - last, 250) / 1000) * speed);
    if (time >= duration && !header.live) setPlaying(false);
  }
  last = now;
  if (node >= 0 && network.here[node]) [view.x, view.y] = [network.x[node], network.y[node]];
  if (stale) {
    for (const stage of stages) stage.draw(time, memory(), node);
    // Update numbers rarely: at sixty changes per second nobody can read them.
    if (!playing || now - drawn > 120) {
      tell();
      drawn = now;
    }
    stale = false;
  }
  requestAnimationFrame(frame);
}

// --- search
let chosen = 0, hits = [];

function search(text) {
  const sought = text.trim().toLowerCase();
  hits = [];
  if (sought) {
    const number = sought.replace(/^node\s*/, "");
    for (let i = 0; i < header.nodes && hits.length < 6; i++) if (nodeName(i).toLowerCase().startsWith(number)) hits.push({ text: `node ${nodeName(i)}`, go: () => followNode(i) });
    runs[0].events.some((id, place) => {
      if (`event ${id} ${runs[0].attributes[place]}`.toLowerCase().includes(sought))
        hits.push({ text: `event ${id} · ${clockText(runs[0].published[place])} · ${runs[0].attributes[place]}`, go: () => { followEvent(id); seek(runs[0].published[place]); } });
      return hits.length >= 40;
    });
  }
  chosen = 0;
  showHits();
}

function showHits() {
  const list = $("found");
  list.replaceChildren(...hits.map((hit, place) => {
    const item = document.createElement("li");
    item.textContent = hit.text;
    item.className = place === chosen ? "chosen" : "";
    item.addEventListener("pointerdown", (press) => { press.preventDefault(); take(place); });
    return item;
  }));
  list.hidden = !hits.length;
}

function take(place) {
  hits[place]?.go();
  hits = [];
  showHits();
  $("find").value = "";
  $("find").blur();
}

// --- mouse, touch and keyboard
function touch(stage) {
  const fingers = new Map();
  let moved = 0;
  const zoom = (by, x, y) => {
    const before = stage.ground(x, y);
    view.scale = Math.min(Math.max(view.scale * by, stage.fit() / 4), stage.fit() * 200);
    const after = stage.ground(x, y);
    view.x += before[0] - after[0];
    view.y += before[1] - after[1];
    view.fitted = false;
    stale = true;
  };
  const at = (press) => { const box = stage.canvas.getBoundingClientRect(); return [press.clientX - box.left, press.clientY - box.top]; };
  stage.canvas.addEventListener("pointerdown", (press) => { stage.canvas.setPointerCapture(press.pointerId); fingers.set(press.pointerId, at(press)); if (fingers.size === 1) moved = 0; });
  stage.canvas.addEventListener("pointermove", (press) => {
    const before = fingers.get(press.pointerId);
    if (!before) return;
    const now = at(press), others = [...fingers].filter((one) => one[0] !== press.pointerId).map((one) => one[1]);
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (others.length) {
      const [x, y] = others[0];
      zoom(Math.hypot(now[0] - x, now[1] - y) / Math.max(Math.hypot(before[0] - x, before[1] - y), 1), x, y);
    } else if (moved > 5) {
      view.x -= (now[0] - before[0]) / view.scale;
      view.y += (now[1] - before[1]) / view.scale;
      view.fitted = false;
      stale = true;
    }
    fingers.set(press.pointerId, now);
  });
  const lift = (press) => { if (fingers.delete(press.pointerId) && moved <= 5 && press.type === "pointerup") { const near = stage.nearest(...at(press)); if (near >= 0) followNode(near); } };
  stage.canvas.addEventListener("pointerup", lift);
  stage.canvas.addEventListener("pointercancel", lift);
  stage.canvas.addEventListener("dblclick", () => { node = -1; fitView(); });
  stage.canvas.addEventListener("wheel", (turn) => { turn.preventDefault(); zoom(Math.exp(-turn.deltaY * 0.0015), ...at(turn)); }, { passive: false });
}

function press(key) {
  const typing = document.activeElement === $("find"), step = Math.max(duration / 200, 0.1) * (key.shiftKey ? 10 : 1);
  if (key.ctrlKey || key.metaKey || key.altKey) return;
  if (typing) {
    if (key.key === "Enter") take(chosen);
    else if (key.key === "ArrowDown" || key.key === "ArrowUp") { chosen = Math.min(Math.max(chosen + (key.key === "ArrowDown" ? 1 : -1), 0), Math.max(hits.length - 1, 0)); showHits(); key.preventDefault(); }
    else if (key.key === "Escape") { $("find").value = ""; search(""); $("find").blur(); }
    return;
  }
  const faster = (by) => setSpeed(SPEEDS[Math.min(Math.max(SPEEDS.findLastIndex((one) => one <= speed) + by, 0), SPEEDS.length - 1)]);
  const deeds = {
    " ": () => setPlaying(!playing), ArrowLeft: () => seek(time - step), ArrowRight: () => seek(time + step),
    Home: () => seek(0), End: () => seek(duration), "+": () => faster(1), "=": () => faster(1), "-": () => faster(-1),
    e: () => stepEvent(1), E: () => stepEvent(-1), n: () => followNode((node + 1) % header.nodes),
    N: () => followNode((Math.max(node, 0) + header.nodes - 1) % header.nodes), "/": () => $("find").focus(), 0: fitView,
    Escape: () => { followEvent(null); followNode(-1); }, "?": () => $("keys").showModal(),
  };
  if (!Object.hasOwn(deeds, key.key) || $("keys").open) return;
  // A pressed button keeps the focus, and space would press it again.
  document.activeElement?.blur?.();
  deeds[key.key]();
  key.preventDefault();
}

function listen() {
  $("play").onclick = () => setPlaying(!playing);
  $("back").onclick = () => seek(time - duration / 200);
  $("forth").onclick = () => seek(time + duration / 200);
  $("event-next").onclick = () => stepEvent(1);
  $("event-back").onclick = () => stepEvent(-1);
  $("free").onclick = () => { followEvent(null); followNode(-1); };
  $("help").onclick = () => $("keys").showModal();
  $("scrub").max = duration;
  $("scrub").oninput = () => seek($("scrub").value);
  for (const one of SPEEDS) $("speed").add(new Option(`${one}×`, one));
  $("speed").onchange = () => setSpeed($("speed").value);
  $("find").oninput = () => search($("find").value);
  $("find").onblur = () => { hits = []; showHits(); };
  addEventListener("keydown", press);
  addEventListener("resize", resize);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); drawMarks(); stale = true; });
}

// Apply the fragment of the address, as in player.html#t=120&event=0.3&node=5&speed=10&play
function obeyAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("speed")) setSpeed(asked.get("speed"));
  if (asked.has("event")) followEvent(asked.get("event"));
  if (asked.has("t")) seek(asked.get("t"));
  if (asked.has("node")) followNode(Number(asked.get("node")));
  if (asked.has("play")) setPlaying(true);
}

// For programs: the controls, and the displayed state.
function state() {
  return {
    time_s: time, playing, speed, node, event, duration_s: duration, names: header.names,
    places: Array.from(network.here, (here, one) => (here ? [network.x[one], network.y[one]] : null)),
    links: network.pairs((link) => network.stands(link)), cut: network.pairs((link) => network.isCut(link)), islands: network.islands, alone: network.alone, signs: Array.from(network.sign), extent: { ...extent }, view: { ...view },
    runs: moments.map((moment) => ({
      label: moment.run.label, reached: members(moment.reached), carries: members(moment.carries),
      delivered: members(moment.delivered), wants: members(moment.wants), down: members(moment.down),
      stored: Array.from(moment.stored), drops: moment.drops, deliveries: moment.deliveries, frames: moment.frames(time),
    })),
  };
}

async function readRuns() {
  const bytes = await readColumns();
  network = new Network(readLegs(bytes), readPairs(bytes, "link"), readPairs(bytes, "cut"), header.nodes);
  network.hearing = readHearing(bytes);
  runs = header.runs.map((told) => readRun(bytes, told));
  moments = runs.map((run) => new Moment(run, header.nodes));
  network.down = moments[0].down;
}

async function open() {
  const begun = performance.now();
  $("title").textContent = header.title;
  if (header.live) await pull();
  else await readRuns();
  readColors();
  stages = runs.map((run, place) => {
    const box = document.createElement("section");
    box.className = "stage";
    box.innerHTML = `<h2>${breakable(run.label)}</h2><canvas aria-label="the network under ${escapeText(run.label)}"></canvas>`;
    $("stages").append(box);
    return new Stage(box.querySelector("canvas"), network, moments[place]);
  });
  stages.forEach(touch);
  listen();
  setSpeed(speed);
  seek(0);
  tell();
  resize();
  // The size of the panel depends on its text, and the size of the maps on the panel.
  const observer = new ResizeObserver(resize);
  for (const stage of stages) observer.observe(stage.canvas);
  if (header.live) startFeed();
  obeyAddress();
  requestAnimationFrame(frame);
  return performance.now() - begun;
}

const ready = open();
ready.catch((error) => { $("title").textContent = `This browser cannot show the run: ${error.message}`; });
window.carrycast = { ready, seek, play: () => setPlaying(true), pause: () => setPlaying(false), setSpeed, followNode, followEvent, state };
