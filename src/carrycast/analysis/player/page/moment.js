// The state at a moment. Going forward applies the facts since; going back starts over, which takes milliseconds.
// Islands differ by color, and when colors run out, also by the shape of their nodes.
const ISLAND_COLORS = 12, ISLAND_SHAPES = 8, ISLAND_SIGNS = ISLAND_COLORS * ISLAND_SHAPES;
const REACH = 0, STORE = 1, EVICT = 2, DELIVER = 3, CRASH = 4, STOP = 5, START = 6;

class Standing {
  // The active intervals at a moment, from intervals sorted by start.
  constructor(pairs) {
    this.pairs = pairs;
    this.restart();
  }

  restart() {
    const size = this.pairs.start.length;
    if (!this.open || this.open.length < size) [this.open, this.spot] = [new Int32Array(2 * size), new Int32Array(2 * size)];
    this.opened = this.closed = this.count = 0;
  }

  seek(time) {
    const { start, end, byEnd } = this.pairs;
    while (this.opened < start.length && start[this.opened] <= time) {
      this.spot[this.opened] = this.count;
      this.open[this.count++] = this.opened++;
    }
    while (this.closed < byEnd.length && end[byEnd[this.closed]] <= time) {
      const gone = byEnd[this.closed++], spot = this.spot[gone], last = this.open[--this.count];
      this.open[spot] = last;
      this.spot[last] = spot;
    }
  }
}

class Network {
  // Positions, links and islands, which are the same for all runs.
  constructor(legs, links, cuts, nodes) {
    Object.assign(this, { legs, links, cuts, nodes });
    this.x = new Float64Array(nodes);
    this.y = new Float64Array(nodes);
    this.here = new Uint8Array(nodes);
    this.island = new Int32Array(nodes);
    this.size = new Int32Array(nodes);
    // The sign (color and shape) of each node's island; -1 for isolated nodes.
    this.sign = new Int32Array(nodes).fill(-1);
    // Nodes that are down. The first run decides, since faults are the same for all runs.
    this.down = new Uint8Array(nodes);
    this.linked = new Standing(links);
    this.severed = new Standing(cuts);
    // Nodes that are cut off from all others, and pairs that are cut.
    this.off = new Uint8Array(nodes);
    this.apart = new Set();
    this.restart();
    if (!legs) this.circle();
  }

  restart() {
    this.time = -1;
    this.linked.restart();
    this.severed.restart();
  }

  circle() {
    // Without positions, nodes are on a circle, where links are visible.
    for (let node = 0; node < this.nodes; node++) {
      const angle = (2 * Math.PI * node) / this.nodes;
      this.x[node] = 500 + 460 * Math.sin(angle);
      this.y[node] = 500 + 460 * Math.cos(angle);
      this.here[node] = 1;
    }
  }

  seek(time) {
    if (time < this.time) this.restart();
    this.time = time;
    this.linked.seek(time);
    this.severed.seek(time);
    this.off.fill(0);
    this.apart.clear();
    for (let i = 0; i < this.severed.count; i++) {
      const cut = this.severed.open[i], a = this.cuts.a[cut], b = this.cuts.b[cut];
      if (b < 0) this.off[a] = 1;
      else this.apart.add(this.pair(a, b));
    }
    if (this.legs) this.move(time);
    this.join();
  }

  pair(a, b) {
    return a < b ? a * this.nodes + b : b * this.nodes + a;
  }

  move(time) {
    const { first, start, end, x, y, vx, vy, at } = this.legs;
    for (let node = 0; node < this.nodes; node++) {
      let leg = at[node];
      const low = first[node], high = first[node + 1];
      if (leg >= high || start[leg] > time || (leg + 1 < high && start[leg + 1] <= time)) {
        let from = low, to = high;
        while (from < to) {
          const middle = (from + to) >> 1;
          if (start[middle] <= time) from = middle + 1;
          else to = middle;
        }
        at[node] = leg = Math.max(from - 1, low);
      }
      const present = leg < high && start[leg] <= time && time <= end[leg];
      this.here[node] = present ? 1 : 0;
      if (!present) continue;
      this.x[node] = x[leg] + vx[leg] * (time - start[leg]);
      this.y[node] = y[leg] + vy[leg] * (time - start[leg]);
    }
  }

  join() {
    const { island, size } = this;
    for (let node = 0; node < this.nodes; node++) island[node] = node;
    const root = (node) => {
      while (island[node] !== node) node = island[node] = island[island[node]];
      return node;
    };
    this.linksUp = this.linksCut = 0;
    for (let i = 0; i < this.linked.count; i++) {
      const link = this.linked.open[i];
      if (this.isCut(link)) this.linksCut++;
      if (!this.stands(link)) continue;
      this.linksUp++;
      const a = root(this.links.a[link]), b = root(this.links.b[link]);
      // The lowest node number identifies an island.
      if (a < b) island[b] = a;
      else island[a] = b;
    }
    size.fill(0);
    this.islands = this.alone = 0;
    for (let node = 0; node < this.nodes; node++) size[(island[node] = root(node))]++;
    for (let node = 0; node < this.nodes; node++) {
      if (size[node] > 1) this.islands++;
      else if (size[node] === 1 && this.here[node]) this.alone++;
    }
    this.giveSigns();
  }

  // Islands have different signs while there are enough signs. An island keeps the sign that most of its nodes had at
  // the moment shown before, forward or back in time. If two islands claim a sign, the one with more such nodes gets it.
  giveSigns() {
    const { island, size, sign } = this, claims = new Map(), given = new Map(), taken = new Set();
    const most = this.islands <= ISLAND_COLORS ? ISLAND_COLORS : this.islands <= ISLAND_SIGNS ? ISLAND_SIGNS : Infinity;
    for (let node = 0; node < this.nodes; node++) {
      if (size[island[node]] < 2 || sign[node] < 0 || sign[node] >= most) continue;
      const key = `${island[node]} ${sign[node]}`, claim = claims.get(key) ?? { root: island[node], sign: sign[node], nodes: 0 };
      claim.nodes++;
      claims.set(key, claim);
    }
    const give = (root, one) => { given.set(root, one); taken.add(one); };
    const order = [...claims.values()].sort((one, other) => other.nodes - one.nodes || one.root - other.root || one.sign - other.sign);
    for (const claim of order) if (!given.has(claim.root) && !taken.has(claim.sign)) give(claim.root, claim.sign);
    let free = 0;
    for (let root = 0; root < this.nodes; root++) {
      if (size[root] < 2 || island[root] !== root || given.has(root)) continue;
      while (taken.has(free)) free++;
      give(root, free);
    }
    for (let node = 0; node < this.nodes; node++) sign[node] = given.get(island[node]) ?? -1;
  }

  // Both ends are present and up, so they hear each other.
  near(link) {
    const a = this.links.a[link], b = this.links.b[link];
    return this.here[a] && this.here[b] && !this.down[a] && !this.down[b];
  }

  // Links within range that a fault cuts.
  isCut(link) {
    if (!this.severed.count) return false;
    const a = this.links.a[link], b = this.links.b[link];
    return this.near(link) && (this.off[a] || this.off[b] || this.apart.has(this.pair(a, b)));
  }

  stands(link) {
    return this.near(link) && !this.isCut(link);
  }

  pairs(which) {
    const found = Array.from(this.linked.open.subarray(0, this.linked.count)).filter(which);
    return found.map((link) => [this.links.a[link], this.links.b[link]]);
  }
}

class Moment {
  // The state of a run: buffers, drops, and the progress of the followed event.
  constructor(run, nodes) {
    this.run = run;
    this.nodes = nodes;
    for (const name of ["reached", "carries", "delivered", "down"]) this[name] = new Uint8Array(nodes);
    // The sender of the followed event to each node, and the time.
    this.from = new Int32Array(nodes);
    this.since = new Float64Array(nodes);
    this.stored = new Int32Array(nodes);
    this.wants = new Uint8Array(nodes);
    this.event = -1;
    this.restart();
  }

  restart() {
    this.time = -1;
    this.next = this.nextDrop = this.deliveries = this.drops = 0;
    for (const name of ["reached", "carries", "delivered", "down", "stored"]) this[name].fill(0);
    this.from.fill(-1);
    this.reasons = new Float64Array(this.run.reasons.length);
    // Recent facts, which are drawn for a short while: [time, node, kind].
    this.lately = [];
  }

  follow(id) {
    this.event = id === null ? -1 : this.run.place.get(id) ?? -1;
    this.wants.fill(0);
    if (this.event >= 0) for (const node of this.run.wanted[this.event]) this.wants[node] = 1;
    this.restart();
  }

  seek(time, memory) {
    if (time < this.time) this.restart();
    const run = this.run;
    while (this.next < run.time.length && run.time[this.next] <= time) this.apply(this.next++, time - memory);
    while (this.nextDrop < run.dropTime.length && run.dropTime[this.nextDrop] <= time) {
      const drop = this.nextDrop++;
      this.drops += run.dropMany[drop];
      this.reasons[run.dropReason[drop]] += run.dropMany[drop];
      if (run.dropTime[drop] > time - memory && (this.event < 0 || run.dropEvent[drop] === this.event))
        this.lately.push([run.dropTime[drop], run.dropNode[drop], "drop"]);
    }
    this.time = time;
    this.lately = this.lately.filter((one) => one[0] > time - memory);
  }

  apply(fact, since) {
    const { run } = this, node = run.node[fact], code = run.code[fact], mine = run.event[fact] === this.event;
    if (code === STORE) this.stored[node]++;
    else if (code === EVICT) this.stored[node]--;
    else if (code === DELIVER) this.deliveries++;
    else if (code >= CRASH) {
      this.down[node] = code === START ? 0 : 1;
      if (code !== STOP) this.stored[node] = this.carries[node] = 0;
      return;
    }
    if (code === DELIVER && (mine || this.event < 0) && run.time[fact] > since)
      this.lately.push([run.time[fact], node, "deliver"]);
    if (!mine) return;
    if (code === STORE) this.carries[node] = 1;
    else if (code === EVICT) this.carries[node] = 0;
    else if (code === DELIVER) this.delivered[node] = 1;
    if (code === REACH) [this.from[node], this.since[node]] = [run.peer[fact], run.time[fact]];
    if (code !== EVICT) this.reached[node] = 1;
  }

  frames(time) {
    const bin = Math.floor((time / duration) * this.run.frames.length);
    return bin < 1 ? 0 : this.run.frames[Math.min(bin, this.run.frames.length) - 1];
  }

  // Eligible nodes that got the followed event, and the number of eligible nodes.
  served() {
    let got = 0, wanted = 0;
    for (let node = 0; node < this.nodes; node++) if (this.wants[node]) { wanted++; got += this.delivered[node]; }
    return [got, wanted];
  }
}

const total = (column) => column.reduce((sum, value) => sum + value, 0);
const members = (column) => Array.from(column.keys()).filter((node) => column[node]);
