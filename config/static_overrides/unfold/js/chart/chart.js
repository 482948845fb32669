/* In place of unfold's Chart.js (200 KB on every page): the charts of this console are SVG. */
