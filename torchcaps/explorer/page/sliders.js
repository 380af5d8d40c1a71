// A finger that scrolls past a slider has moved it before the browser knew; then it goes back.

/** @param {HTMLInputElement} input of type range */
export function backAfterScrolling(input) {
  let before = null;
  input.addEventListener("pointerdown", () => {
    before = input.value;
  });
  input.addEventListener("pointercancel", () => {
    if (before === null || before === input.value) return;
    input.value = before;
    input.dispatchEvent(new Event("input"));
  });
}
