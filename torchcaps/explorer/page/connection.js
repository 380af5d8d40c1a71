// What happens when a request fails: a sentence; and if the server is gone, waiting until it is back.

import { models, Refused, Unreachable } from "./api.js";
import { hush, say } from "./message.js";

const TRY_AGAIN_AFTER = 1500; // milliseconds

/** @param {() => void} goOn when the server is back @returns {(error: Error) => void} */
export function reporter(goOn) {
  let waiting = false;

  async function again() {
    try {
      await models();
    } catch {
      setTimeout(again, TRY_AGAIN_AFTER);
      return;
    }
    waiting = false;
    hush();
    goOn();
  }

  return (error) => {
    if (error instanceof Refused) {
      say(error.message);
    } else if (error instanceof Unreachable) {
      say(`${error.message} This page goes on by itself when it is back.`);
      if (!waiting) setTimeout(again, TRY_AGAIN_AFTER);
      waiting = true;
    } else {
      console.error(error);
      say("Something went wrong on this page. Reload it; the address keeps the picture.");
    }
  };
}
