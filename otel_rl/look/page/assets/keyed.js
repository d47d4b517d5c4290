// Lists whose elements stay while what they show stays: focus, selection and scrolling are not lost.

/** Let the children of `parent` be those of `items`, in their order. `make(item)` makes one, `update(element, item)` renews it. */
export function keyed(parent, items, {key, make, update}) {
  const before = new Map([...parent.children].map((element) => [element.dataset.key, element]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = before.get(name);
    before.delete(name);
    if (!element) {
      element = make(item);
      element.dataset.key = name;
    }
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const element of before.values()) element.remove();
}
