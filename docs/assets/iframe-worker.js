// A browser starts no worker for a page that is opened from disk. There the search runs in a hidden frame instead,
// which behaves as a worker does as far as the theme uses one. Served by a web server, nothing of this happens.
if (location.protocol === "file:") {
  const prelude = `
    postMessage = (data) => frameElement.answer(data)
    importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((loaded, failed) => {
      const script = document.createElement("script")
      Object.assign(script, { src: url, onload: loaded, onerror: failed })
      document.body.append(script)
    })), Promise.resolve())
  `
  // The theme asks for this name to tell a frame from a worker.
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true })
      this.frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((loaded) => { this.frame.onload = loaded })
      this.frame.srcdoc = `<body><script>${prelude}<\/script><script src="${url}"><\/script></body>`
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
