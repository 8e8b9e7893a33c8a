// Formulas: pymdownx.arithmatex leaves them as text in elements of class arithmatex.
document$.subscribe(({ body }) => {
  for (const node of body.querySelectorAll(".arithmatex")) {
    const text = node.textContent.trim();
    if (!text.startsWith("\\")) continue;
    katex.render(text.slice(2, -2), node, { displayMode: text.startsWith("\\["), throwOnError: false });
  }
});
