// @NAME@, compiled by holonomix: const k = await load(); k.set({q, p, dt, params}); k.step(1000); k.q, k.p, k.t
const layout = @LAYOUT@;

async function read(source) {
  if (typeof source !== "string" && !(source instanceof URL)) return source; // bytes
  if (String(source).startsWith("file:")) return (await import("node:fs/promises")).readFile(new URL(source));
  const answer = await fetch(source);
  if (!answer.ok) throw new Error(`cannot load ${source}: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

/** A kernel at the start of the problem. `source` is the address of the module, or its bytes. */
export async function load(source = new URL("./@NAME@.wasm", import.meta.url)) {
  const {instance} = await WebAssembly.instantiate(await read(source), {env: Math});
  return new Kernel(instance.exports, layout);
}

@CLASS@
export {Kernel};
