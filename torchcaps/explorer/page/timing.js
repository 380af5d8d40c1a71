// How long the page takes from a hand's movement to the frame that shows its effect, as performance measures.

const KEPT = 200;
const counts = new Map();

/** @param {"look"|"decode"} name @param {number} start an event's timeStamp; ends when the next frame is out */
export function measureToFrame(name, start) {
  if (!start) return;
  requestAnimationFrame(() => {
    // a message comes after the frame that was just prepared has been handed over
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      const made = (counts.get(name) ?? 0) + 1;
      if (made > KEPT) performance.clearMeasures(name);
      counts.set(name, made > KEPT ? 1 : made);
      performance.measure(name, { start, end: performance.now() });
    };
    port2.postMessage(0);
  });
}
