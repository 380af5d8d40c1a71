// Keeps the address bar in step with the page, and reads it.

import { readHash, unpackLayer, writeHash } from "./link.js";
import { say } from "./message.js";

const EVERY = 300; // milliseconds; browsers stop pages that change their address too often

export class Address {
  #timer = 0;

  /** @param {() => ?object} current what `writeHash` takes, or null while there is nothing to keep */
  constructor(current) {
    this.current = current;
  }

  later() {
    // too large a picture is not kept; `share` says so
    this.#timer ||= setTimeout(() => this.write().catch(() => {}), EVERY);
  }

  async write() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const state = this.current();
    if (!state) return;
    const hash = await writeHash(state);
    if (this.current()?.layers === state.layers && hash !== location.hash) history.replaceState(null, "", hash);
  }

  /** @param {import("./api.js").Model[]} models @returns {Promise<?object>} null if there is nothing, or nonsense */
  async read(models, hash = location.hash) {
    try {
      const found = readHash(hash);
      if (!found) return null;
      const model = models.find((each) => each.id === found.model);
      if (!model) throw new Error(`no model ${found.model}`);
      for (const label of [found.label, found.watched]) {
        if (label !== null && label >= model.classes.length) throw new Error("no such class");
      }
      const layers = found.layers && (await Promise.all(found.layers.map((text) => unpackLayer(text, model))));
      return { ...found, layers };
    } catch {
      say("The link could not be read, so the page starts afresh.");
      return null;
    }
  }

  async share() {
    try {
      await this.write();
    } catch (error) {
      say(error.message);
      return;
    }
    try {
      await navigator.clipboard.writeText(location.href);
      say("The link to what you see is copied.", { kind: "note", seconds: 4 });
    } catch {
      say("The link could not be copied; it is in the address bar.", { kind: "note" });
    }
  }
}
