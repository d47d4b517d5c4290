// Columns of numbers, as `packed.py` writes them: base64 of compressed bytes, those of equal weight side by side.

const KINDS = {f8: Float64Array, f4: Float32Array, i4: Int32Array, u1: Uint8Array};

/** The numbers of a column. Each column is decoded once. */
export function decoded(column) {
  column.made ??= decode(column);
  return column.made;
}

async function decode({kind, count, data, first, scale}) {
  const text = atob(data);
  const compressed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) compressed[i] = text.charCodeAt(i);
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const shuffled = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = KINDS[kind].BYTES_PER_ELEMENT;
  const bytes = new Uint8Array(shuffled.length);
  for (let part = 0; part < size; part++) {
    for (let i = 0; i < count; i++) bytes[i * size + part] = shuffled[part * count + i];
  }
  const values = new KINDS[kind](bytes.buffer, 0, count);
  return scale === undefined ? values : summed(values, first, scale);
}

function summed(differences, first, scale) {
  const values = new Float64Array(differences.length);
  const divisor = Math.round(1 / scale); // a division is exact where a product with 1e-6 is not
  let sum = first;
  for (let i = 0; i < differences.length; i++) {
    sum += differences[i];
    values[i] = sum / divisor;
  }
  return values;
}

/** The first place whose value is not below the given one. */
export function placeOf(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
