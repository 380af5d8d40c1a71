// Images of one's own: chosen, dropped on the pad, or pasted.

/**
 * The newest wins: an image that was asked for before something else came onto the pad is not shown any more.
 * @param {{input: HTMLInputElement, invert: HTMLSelectElement, centre: HTMLInputElement, target: HTMLElement}} controls
 * @param {(file: Blob, how: {invert: string, centre: boolean}) => Promise<?Uint8Array>} read null if it cannot be read
 * @param {(pixels: Uint8Array, how: {centre: boolean, again: boolean, time: number}) => void} show `again`: in the
 *   place of what the same image was read as before
 * @param {(sentence: string) => void} complain
 * @returns {{forget: () => void}} to be called at every change of the picture, `show` included
 */
export function acceptImages({ input, invert, centre, target }, read, show, complain) {
  /** @type {?{file: Blob, shown: boolean}} a new object for each reading, so that an older one knows that it is late */
  let current = null;

  const bring = async (file, again, time) => {
    const own = { file, shown: again };
    current = own;
    const how = { invert: invert.value, centre: centre.checked };
    const pixels = await read(file, how);
    if (current !== own) return;
    if (pixels) show(pixels, { centre: how.centre, again, time });
    current = pixels ? { file, shown: true } : null;
  };

  const give = (file, time) => {
    if (!file) return;
    if (file.type && !file.type.startsWith("image/")) {
      complain(`“${file.name}” is not an image.`);
      return;
    }
    bring(file, false, time);
  };

  input.addEventListener("change", (event) => {
    give(input.files[0], event.timeStamp);
    input.value = ""; // so that the same file can be chosen again
  });

  // another way of reading the image that is there already
  const again = (event) => current && bring(current.file, current.shown, event.timeStamp);
  invert.addEventListener("change", again);
  centre.addEventListener("change", again);

  const hasFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  // anywhere, because a file that misses the pad would otherwise replace the page
  addEventListener("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    target.classList.toggle("target", event.target === target);
  });
  addEventListener("dragleave", () => target.classList.remove("target"));
  addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    target.classList.remove("target");
    give(event.dataTransfer.files[0], event.timeStamp);
  });
  addEventListener("paste", (event) => {
    const item = [...(event.clipboardData?.items ?? [])].find((each) => each.type.startsWith("image/"));
    if (item) give(item.getAsFile(), event.timeStamp);
  });

  return { forget: () => (current = null) };
}
