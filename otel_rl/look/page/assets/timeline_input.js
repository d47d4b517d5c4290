// Pointer, wheel, touch and keys of the timeline.

const TIMELINE_CLICK_PX = 5;
const TIMELINE_WHEEL = 0.0016;
const TIMELINE_MOST_WHEEL = 0.7;
const TIMELINE_PAN = 0.15;

/**
 * Listen to the pointer. `at` has what a pointer does: `share(x)` and `span(x, y)` find what is below it, `range` moves,
 * `scroll(by)` moves the rows, `hover`, `select` and `enter` get spans (-1: none), `hint` says how to zoom.
 */
export function timelinePointer(stage, canvas, at) {
  const down = new Map();
  let moved = false;
  let distance = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    moved = down.size > 1;
    if (event.pointerType !== "touch") stage.focus({ preventScroll: true });
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    const before = down.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "touch") at.hover(at.span(x, y), x, y);
      return;
    }
    const wide = Math.hypot(x - before[0], y - before[1]);
    if (!moved && wide < TIMELINE_CLICK_PX) return;
    moved = true;
    at.hover(-1);
    if (down.size === 2) {
      const middle = timelinePinch(down);
      down.set(event.pointerId, [x, y]);
      const next = timelinePinch(down);
      at.range.pan(at.share(middle.x) - at.share(next.x));
      if (middle.wide > 20 && next.wide > 20) at.range.zoom(middle.wide / next.wide, at.share(next.x));
      return;
    }
    down.set(event.pointerId, [x, y]);
    at.range.pan(at.share(before[0]) - at.share(x));
    if (event.pointerType !== "touch") at.scroll(before[1] - y);
  });
  const up = (event) => {
    if (!down.delete(event.pointerId)) return;
    if (!moved && event.type === "pointerup") at.select(at.span(...place(event)));
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => at.hover(-1));
  canvas.addEventListener("dblclick", (event) => at.enter(at.span(...place(event))));
  canvas.addEventListener(
    "wheel",
    (event) => {
      const [x] = place(event);
      const pixels = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      const zooms = event.ctrlKey || event.metaKey || document.activeElement === stage;
      if (event.shiftKey) return; // the browser scrolls the rows
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        at.range.pan((event.deltaX * pixels) / canvas.clientWidth);
      } else if (zooms) {
        event.preventDefault();
        const by = event.deltaY * pixels * (event.ctrlKey ? 6 : 1) * TIMELINE_WHEEL; // a pinch comes as small steps with Ctrl
        at.range.zoom(Math.exp(Math.max(-TIMELINE_MOST_WHEEL, Math.min(TIMELINE_MOST_WHEEL, by))), at.share(x));
      } else at.hint();
    },
    { passive: false },
  );
}

function timelinePinch(down) {
  const [[ax, ay], [bx, by]] = [...down.values()];
  return { x: (ax + bx) / 2, wide: Math.hypot(ax - bx, ay - by) };
}

/** Listen to keys. `at` has `range`, `share()` of the selection or the middle, `move`, `enter`, `out`, `search`, `next`. */
export function timelineKeys(stage, at) {
  const keys = {
    w: () => at.range.zoom(1 / 1.4, at.share()),
    s: () => at.range.zoom(1.4, at.share()),
    a: () => at.range.pan(-TIMELINE_PAN),
    d: () => at.range.pan(TIMELINE_PAN),
    "+": () => at.range.zoom(1 / 1.4, at.share()),
    "-": () => at.range.zoom(1.4, at.share()),
    0: () => at.range.whole(),
    n: () => at.next(1),
    N: () => at.next(-1),
    "/": () => at.search(),
    Enter: () => at.enter(),
    Escape: () => at.out(),
    ArrowLeft: () => at.move("before"),
    ArrowRight: () => at.move("after"),
    ArrowUp: () => at.move("up"),
    ArrowDown: () => at.move("down"),
  };
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== stage) return;
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!act || act() === false) return; // what is not used is for the page
    event.preventDefault();
    event.stopPropagation();
  });
}
