for (const chart of document.querySelectorAll("figure[data-low]")) {
  const svg = chart.querySelector("svg"), cursor = svg.querySelector(".cursor"), output = chart.querySelector("output");
  const [low, high, left, right] = ["low", "high", "left", "right"].map(name => Number(chart.dataset[name]));
  const curves = [...chart.querySelectorAll("data")].map(data => ({
    name: data.value, x: data.dataset.x.split(" ").map(Number), y: data.dataset.y.split(" "),
  }));
  const nearest = (xs, x) => {
    let a = 0, b = xs.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; if (xs[m] < x) a = m; else b = m; }
    return x - xs[a] <= xs[b] - x ? a : b;
  };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const share = Math.min(1, Math.max(0, (at - left) / (right - left)));
    const x = low + share * (high - low);
    cursor.setAttribute("x1", left + share * (right - left));
    cursor.setAttribute("x2", left + share * (right - left));
    cursor.setAttribute("visibility", "visible");
    output.textContent = curves.map(curve => {
      const i = nearest(curve.x, x);
      return curve.name + " " + curve.y[i] + " at step " + curve.x[i].toLocaleString("en");
    }).join(" · ");
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); output.textContent = ""; });
}
