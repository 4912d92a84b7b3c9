// Browsers refuse to start a worker from a file, so the search of a site that is opened without a server would not work.
// There, a worker runs in a hidden frame instead: it gets messages as events, and its answers are events of this object.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.ready = new Promise((resolve) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        document.body.append(frame);
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = (...urls) =>
          Promise.all(urls.map((source) => new Promise((loaded) => {
            const script = inside.document.createElement("script");
            script.src = new URL(source, url).href;
            script.onload = loaded;
            inside.document.body.append(script);
          })));
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = () => resolve(inside);
        inside.document.body.append(script);
      });
    }
    async postMessage(data) {
      (await this.ready).dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {}
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
}
