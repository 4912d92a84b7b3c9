// A live network: the program that watches the nodes sends rows while they happen.
const PERIOD_MS = 500;
const LINK_UP = 7, LINK_DOWN = 8, PLACE = 9, DROP = 10, EVENT = 11, FRAMES = 12;
const feed = { chapter: -1, next: 0, missed: 0, edge: true, failed: 0, linked: new Map() };

const noPairs = () => ({ start: [], end: [], byEnd: [], a: [], b: [] });

class LiveNetwork extends Network {
  constructor(nodes) {
    super({}, noPairs(), noPairs(), nodes);
    this.places = Array.from({ length: nodes }, () => ({ time: [], x: [], y: [] }));
    this.placed = false;
  }

  // The last reported positions. Nodes without one are below the map; if no node has one, all are on a circle.
  move(time) {
    if (!this.placed) return this.circle();
    const lost = [];
    this.here.fill(1);
    for (let node = 0; node < this.nodes; node++) {
      const told = this.places[node], at = lastAt(told.time, time);
      if (at < 0 || told.x[at] === null) lost.push(node);
      else [this.x[node], this.y[node]] = [told.x[at], told.y[at]];
    }
    lost.forEach((node, i) => {
      this.x[node] = extent.x + (extent.width * (i + 1)) / (lost.length + 1);
      this.y[node] = extent.y + extent.height * 0.04;
    });
  }
}

class LiveMoment extends Moment {
  frames(time) {
    const at = lastAt(this.run.framesTime, time);
    return at < 0 ? 0 : this.run.frames[at];
  }
}

function lastAt(times, time) {
  let from = 0, to = times.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (times[middle] <= time) from = middle + 1;
    else to = middle;
  }
  return from - 1;
}

// A new chapter begins: the feed sends all rows again.
function beginChapter(names) {
  const lists = ["time", "code", "node", "event", "peer", "dropTime", "dropNode", "dropReason", "dropEvent", "dropMany"];
  const run = { label: header.title, wanted: [], place: new Map() };
  for (const name of [...lists, "events", "attributes", "reasons", "frames", "framesTime", "published", "source"]) run[name] = [];
  [header.names, header.nodes] = [names, names.length];
  feed.linked.clear();
  network = new LiveNetwork(names.length);
  runs = [run];
  moments = [new LiveMoment(run, names.length)];
  network.down = moments[0].down;
  if (stages) Object.assign(stages[0], { network, moment: moments[0] });
  if (node >= names.length) node = -1;
}

const takers = {
  [LINK_UP]: ([, at, a, b]) => {
    const { links } = network;
    feed.linked.set(network.pair(a, b), links.start.length);
    for (const [name, value] of [["start", at], ["end", Infinity], ["a", a], ["b", b]]) links[name].push(value);
  },
  [LINK_DOWN]: ([, at, a, b]) => {
    const link = feed.linked.get(network.pair(a, b));
    if (link === undefined) return;
    network.links.end[link] = at;
    network.links.byEnd.push(link);
    feed.linked.delete(network.pair(a, b));
  },
  [PLACE]: ([, at, who, x, y]) => {
    const told = network.places[who];
    for (const [name, value] of [["time", at], ["x", x], ["y", y]]) told[name].push(value);
    if (x !== null) network.placed = true;
  },
  [DROP]: ([, at, who, event, reason], run) => {
    if (!run.reasons.includes(reason)) run.reasons.push(reason);
    for (const [name, value] of [["Time", at], ["Node", who], ["Reason", run.reasons.indexOf(reason)], ["Event", event], ["Many", 1]])
      run["drop" + name].push(value);
  },
  [EVENT]: ([, at, source, id, attributes, wanted], run) => {
    const known = run.place.get(id);
    if (known === undefined) {
      run.place.set(id, run.events.length);
      for (const [name, value] of [["events", id], ["attributes", attributes], ["wanted", wanted], ["published", at], ["source", source]])
        run[name].push(value);
    } else if (attributes) {
      run.attributes[known] = attributes;
      run.wanted[known] = [...new Set([...run.wanted[known], ...wanted])];
    }
  },
  [FRAMES]: ([, at, frames], run) => {
    run.framesTime.push(at);
    run.frames.push(frames);
  },
};

function takeRow(row) {
  const run = runs[0];
  if (takers[row[0]]) return takers[row[0]](row, run);
  const [code, at, who, event, peer] = row;
  for (const [name, value] of [["code", code], ["time", at], ["node", who], ["event", event], ["peer", peer]]) run[name].push(value);
}

// The map shows all reported positions, with a margin, and space below for nodes without a position.
function fitPlaces() {
  if (!network.placed) return Object.assign(extent, { x: 0, y: 0, width: 1000, height: 1000 });
  const xs = network.places.flatMap((told) => told.x.filter((x) => x !== null)), ys = network.places.flatMap((told) => told.y.filter((y) => y !== null));
  Object.assign(extent, { x: xs[0], y: ys[0], width: 0, height: 0 });
  widen(xs, ys);
  addMargin(0.12);
}

async function pull() {
  let told;
  do {
    const answer = await fetch(`story?chapter=${feed.chapter}&after=${feed.next}`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    told = await answer.json();
    if (told.begins) beginChapter(told.names);
    for (const row of told.rows) takeRow(row);
    Object.assign(feed, { chapter: told.chapter, next: told.next, missed: told.missed });
  } while (told.more);
  duration = Math.max(told.now_s, 0.1);
  fitPlaces();
}

function refresh() {
  $("scrub").max = duration;
  network.restart();
  // The eligible nodes of the followed event may have become known.
  for (const moment of moments) moment.follow(event !== null && runs[0].place.has(event) ? event : null);
  if (view.fitted) fitView();
  seek(time);
  drawMarks();
}

// At the latest known time, playback follows the feed.
function goLive() {
  setSpeed(1);
  seek(Math.max(duration - 0.5, 0));
  setPlaying(true);
}

async function keepPulling() {
  try {
    await pull();
    refresh();
    if (feed.failed) $("title").textContent = header.title;
    feed.failed = 0;
  } catch (error) {
    if (++feed.failed === 3) $("title").textContent = `${header.title}: the program that watches has ended`;
  }
  setTimeout(keepPulling, PERIOD_MS);
}

function startFeed() {
  $("live").hidden = false;
  $("live").onclick = goLive;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) feed.edge = playing && duration - time < 3;
    else if (feed.edge) goLive();
  });
  goLive();
  setTimeout(keepPulling, PERIOD_MS);
}
