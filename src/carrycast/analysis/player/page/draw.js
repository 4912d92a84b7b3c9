// Draws a moment on a canvas. All canvases share the view (center and scale).
const view = { x: 0, y: 0, scale: 1, fitted: true };
let colors = {};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "road", "line", "ink", "faint", "quiet", "got", "carry", "reach", "want", "drop", "mark"])
    colors[name] = style.getPropertyValue("--" + name).trim();
  colors.dark = matchMedia("(prefers-color-scheme: dark)").matches;
}

// Twelve colors that differ from each other and from the gray of isolated nodes, on light and dark backgrounds.
const PALETTES = {
  light: ["#1f6fd1", "#e07b00", "#159a4c", "#8e3bc9", "#0aa3b5", "#d13a8a", "#7a8c00", "#7b4a1e", "#2b2f83", "#e8a5c8", "#5ec48f", "#e2b200"],
  dark: ["#5ba0ff", "#ff9f3f", "#3fd07f", "#b87cf0", "#2fd0e0", "#ff78bb", "#b7cc2e", "#c48a55", "#8389f2", "#f4c9de", "#a6e8c4", "#ffd84d"],
};
const HEARING_SHADES = 5;
const islandColor = (sign) => PALETTES[colors.dark ? "dark" : "light"][sign % ISLAND_COLORS];
const islandShape = (sign) => Math.floor(sign / ISLAND_COLORS) % ISLAND_SHAPES;

// The shape of a node: circle, square, diamond, triangle, and the same four as outlines.
function outline(pen, x, y, radius, shape) {
  pen.beginPath();
  if (shape % 4 === 0) return pen.arc(x, y, radius, 0, 2 * Math.PI);
  const corners = [[], [[-1, -1], [1, -1], [1, 1], [-1, 1]], [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]], [[0, -1.3], [1.3, 1], [-1.3, 1]]][shape % 4];
  for (const [right, down] of corners) pen.lineTo(x + right * radius, y + down * radius);
  pen.closePath();
}

class Stage {
  constructor(canvas, network, moment) {
    Object.assign(this, { canvas, network, moment, pen: canvas.getContext("2d") });
  }

  resize() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    this.wide = this.canvas.clientWidth;
    this.high = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.wide * ratio);
    this.canvas.height = Math.round(this.high * ratio);
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  fit() {
    return Math.max(Math.min((this.wide - 36) / extent.width, (this.high - 36) / extent.height), 1e-9);
  }

  px(x) { return this.wide / 2 + (x - view.x) * view.scale; }
  py(y) { return this.high / 2 - (y - view.y) * view.scale; }
  ground(x, y) { return [view.x + (x - this.wide / 2) / view.scale, view.y - (y - this.high / 2) / view.scale]; }

  draw(time, memory, followed) {
    const { pen } = this;
    pen.clearRect(0, 0, this.wide, this.high);
    this.drawGround();
    this.drawLinks();
    if (this.network.hearing) this.drawHearing(time);
    if (this.moment.event >= 0) this.drawWay(time);
    this.drawNodes(followed);
    this.drawLately(time, memory);
  }

  drawGround() {
    const { pen } = this, [width, height] = header.area_m ?? [extent.width, extent.height];
    const [left, low] = header.area_m ? [0, 0] : [extent.x, extent.y];
    const box = [this.px(left), this.py(low + height), width * view.scale, height * view.scale];
    pen.fillStyle = colors.ground;
    pen.fillRect(...box);
    if (header.squares) {
      const [columns, rows] = header.squares;
      pen.beginPath();
      for (let i = 1; i < columns; i++) this.line((width * i) / columns, 0, (width * i) / columns, height);
      for (let i = 1; i < rows; i++) this.line(0, (height * i) / rows, width, (height * i) / rows);
      pen.strokeStyle = colors.line;
      pen.lineWidth = 1;
      pen.stroke();
    }
    pen.strokeStyle = colors.road;
    pen.lineJoin = pen.lineCap = "round";
    for (const [wide, ...places] of header.roads) {
      pen.lineWidth = Math.max(wide * view.scale, 2.5);
      pen.beginPath();
      for (let i = 0; i < places.length; i += 2) pen.lineTo(this.px(places[i]), this.py(places[i + 1]));
      pen.stroke();
    }
    pen.lineCap = "butt";
    pen.fillStyle = colors.faint;
    pen.globalAlpha = 0.35;
    for (const corners of header.buildings ?? []) {
      pen.beginPath();
      for (let i = 0; i < corners.length; i += 2) pen.lineTo(this.px(corners[i]), this.py(corners[i + 1]));
      pen.closePath();
      pen.fill();
    }
    pen.globalAlpha = 1;
    if (!header.moves) return;
    pen.strokeStyle = colors.line;
    pen.lineWidth = 1;
    pen.strokeRect(...box);
  }

  line(x, y, toX, toY) {
    this.pen.moveTo(this.px(x), this.py(y));
    this.pen.lineTo(this.px(toX), this.py(toY));
  }

  drawLinks() {
    const { pen, network } = this, { a, b } = network.links, { open, count } = network.linked, paths = new Map(), cut = [];
    for (let i = 0; i < count; i++) {
      const link = open[i], sign = network.sign[a[link]];
      if (network.isCut(link)) cut.push(link);
      if (!network.stands(link)) continue;
      if (!paths.has(sign)) paths.set(sign, []);
      paths.get(sign).push(link);
    }
    // With many links, thin lines keep the map readable.
    pen.globalAlpha = count > 4 * network.nodes ? 0.22 : 0.5;
    pen.lineWidth = count > 4 * network.nodes ? 0.8 : 1.3;
    const stroke = (links, color) => {
      pen.beginPath();
      for (const link of links) this.line(network.x[a[link]], network.y[a[link]], network.x[b[link]], network.y[b[link]]);
      pen.strokeStyle = color;
      pen.stroke();
    };
    // Where signals fade, the chances to hear are drawn in place of links.
    if (!network.hearing) for (const [sign, links] of paths) stroke(links, islandColor(sign));
    pen.globalAlpha = 0.8;
    pen.setLineDash([3, 5]);
    if (cut.length) stroke(cut, colors.drop);
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  // The half of a line that begins at a node is the more opaque the more likely the other node hears it.
  drawHearing(time) {
    const { pen, network } = this, { first, a, b, toB, toA } = network.hearing;
    const sample = Math.min(Math.max(Math.floor((time * US) / header.hears_us), 0), first.length - 2);
    const shades = Array.from({ length: HEARING_SHADES }, () => []);
    const add = (from, to, percent) => {
      if (percent) shades[Math.min(Math.floor((percent * HEARING_SHADES) / 100), HEARING_SHADES - 1)].push(from, to);
    };
    for (let i = first[sample]; i < first[sample + 1]; i++) {
      if (!network.here[a[i]] || !network.here[b[i]] || this.moment.down[a[i]] || this.moment.down[b[i]]) continue;
      add(a[i], b[i], toB[i]);
      add(b[i], a[i], toA[i]);
    }
    pen.strokeStyle = colors.ink;
    pen.lineWidth = 1.3;
    shades.forEach((ends, shade) => {
      pen.globalAlpha = (0.7 * (shade + 1)) / HEARING_SHADES;
      pen.beginPath();
      for (let i = 0; i < ends.length; i += 2) {
        const x = network.x[ends[i]], y = network.y[ends[i]];
        this.line(x, y, (x + network.x[ends[i + 1]]) / 2, (y + network.y[ends[i + 1]]) / 2);
      }
      pen.stroke();
    });
    pen.globalAlpha = 1;
  }

  // Recent hops of the followed event; all hops would cover the map.
  drawWay(time) {
    const { pen, network, moment } = this;
    pen.beginPath();
    for (let node = 0; node < network.nodes; node++) {
      const peer = moment.from[node];
      if (peer >= 0 && time - moment.since[node] < duration / 20 && network.here[node] && network.here[peer])
        this.line(network.x[peer], network.y[peer], network.x[node], network.y[node]);
    }
    pen.setLineDash([2, 4]);
    pen.strokeStyle = colors.ink;
    pen.globalAlpha = 0.4;
    pen.lineWidth = 1;
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  // The size of a node depends on the free space, the zoom, and the fill of its buffer.
  radius(node) {
    const room = (0.08 * this.fit() * Math.sqrt(extent.width * extent.height)) / Math.sqrt(this.network.nodes);
    const plain = Math.min(Math.max(room, 2), 5) * Math.min(Math.max(Math.sqrt(view.scale / this.fit()), 0.8), 2.5);
    return plain * Math.min(1 + 0.13 * Math.log2(1 + Math.max(this.moment.stored[node], 0)), 2.2);
  }

  nodeColor(node) {
    const { moment, network } = this;
    if (moment.down[node]) return colors.quiet;
    if (moment.event < 0) return network.sign[node] >= 0 ? islandColor(network.sign[node]) : colors.faint;
    if (moment.delivered[node]) return colors.got;
    if (moment.carries[node]) return colors.carry;
    return moment.reached[node] ? colors.reach : colors.faint;
  }

  drawNodes(followed) {
    const { pen, network, moment } = this;
    for (let node = 0; node < network.nodes; node++) {
      if (!network.here[node]) continue;
      const x = this.px(network.x[node]), y = this.py(network.y[node]), radius = this.radius(node);
      if (x < -20 || y < -20 || x > this.wide + 20 || y > this.high + 20) continue;
      const shape = moment.event < 0 && network.sign[node] >= 0 ? islandShape(network.sign[node]) : 0;
      outline(pen, x, y, radius, shape);
      pen.fillStyle = shape < 4 ? this.nodeColor(node) : colors.ground;
      pen.globalAlpha = moment.down[node] ? 0.4 : 1;
      pen.fill();
      if (shape >= 4) {
        pen.strokeStyle = this.nodeColor(node);
        pen.lineWidth = Math.max(radius * 0.45, 1.2);
        pen.stroke();
      }
      pen.globalAlpha = 1;
      if (moment.event >= 0 && moment.wants[node]) this.ring(x, y, radius + 2.5, moment.delivered[node] ? colors.got : colors.want, 1.8);
      if (moment.event >= 0 && moment.run.source[moment.event] === node) this.square(x, y, radius + 5);
      if (node === followed) {
        this.ring(x, y, radius + 8, colors.mark, 2);
        this.label(x, y - radius - 12, nodeName(node));
      } else if (view.scale > 4 * this.fit() || network.nodes <= 30) this.label(x, y - radius - 4, nodeName(node), true);
    }
  }

  ring(x, y, radius, color, wide) {
    this.pen.beginPath();
    this.pen.arc(x, y, radius, 0, 2 * Math.PI);
    this.pen.strokeStyle = color;
    this.pen.lineWidth = wide;
    this.pen.stroke();
  }

  square(x, y, half) {
    this.pen.strokeStyle = colors.ink;
    this.pen.lineWidth = 1.6;
    this.pen.strokeRect(x - half, y - half, 2 * half, 2 * half);
  }

  label(x, y, text, quiet = false) {
    this.pen.font = quiet ? "10px system-ui, sans-serif" : "bold 12px system-ui, sans-serif";
    this.pen.textAlign = "center";
    this.pen.fillStyle = colors.ink;
    this.pen.globalAlpha = quiet ? 0.6 : 1;
    this.pen.fillText(text, x, y);
    this.pen.globalAlpha = 1;
  }

  drawLately(time, memory) {
    const { pen, network, moment } = this;
    for (const [when, node, what] of moment.lately) {
      if (node < 0 || !network.here[node]) continue;
      const age = (time - when) / memory, x = this.px(network.x[node]), y = this.py(network.y[node]);
      pen.globalAlpha = 1 - age;
      if (what === "deliver") this.ring(x, y, this.radius(node) + 3 + 14 * age, colors.got, 2);
      else {
        const half = 3.5, up = this.radius(node) + 5 + 6 * age;
        pen.beginPath();
        pen.moveTo(x - half, y - up - half);
        pen.lineTo(x + half, y - up + half);
        pen.moveTo(x + half, y - up - half);
        pen.lineTo(x - half, y - up + half);
        pen.strokeStyle = colors.drop;
        pen.lineWidth = 1.6;
        pen.stroke();
      }
    }
    pen.globalAlpha = 1;
  }

  nearest(x, y) {
    let best = -1, least = 22 * 22;
    for (let node = 0; node < this.network.nodes; node++) {
      if (!this.network.here[node]) continue;
      const far = (this.px(this.network.x[node]) - x) ** 2 + (this.py(this.network.y[node]) - y) ** 2;
      if (far < least) [best, least] = [node, far];
    }
    return best;
  }
}

const nodeName = (node) => (header.names ? header.names[node] : String(node));
