"""The style sheet of the HTML pages."""

CSS = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5d646d; --paper: #fdfdfc; --card: #ffffff; --line: #e2e4e8;
  --accent: #0072b2; --good: #00704f; --bad: #b3400a; --open: #8a6100; --good-bg: #e3f4ee; --bad-bg: #fbe9e0;
  --open-bg: #fbf1da; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a1a8b2; --paper: #15171a; --card: #1d2024;
  --line: #33373d; --accent: #6cb8e6; --good: #5ad1a8; --bad: #f29b6d; --open: #e7bd57; --good-bg: #12352b;
  --bad-bg: #40231a; --open-bg: #3a2f14; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.6 "Source Serif 4", "Source Serif Pro", Charter, "Bitstream Charter", Georgia, serif; }
main { max-width: 68rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1, h2, h3, nav, table, .tiles, figcaption, summary, footer, .scope, .errors {
  font-family: "Inter", "Helvetica Neue", "Segoe UI", Arial, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 1.2rem; }
h2 { font-size: 1.4rem; line-height: 1.25; letter-spacing: -0.01em; margin: 3.5rem 0 0.8rem; padding-top: 1.2rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 2.4rem 0 0.7rem; }
p { max-width: 44rem; margin: 0.7rem 0; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
small { display: block; color: var(--soft); font-size: 0.82em; line-height: 1.4; }
.files { font-size: 0.75rem; font-weight: 400; margin-left: 0.4rem; white-space: nowrap; }
.files a { color: var(--soft); }
.sentence { font-size: 1.05rem; }
.watch a { border: 1px solid var(--accent); border-radius: 8px; padding: 0.3rem 0.8rem; margin-right: 0.4rem; }
.scope, .paper { color: var(--soft); font-size: 0.88rem; }
.tiles { display: flex; flex-wrap: wrap; gap: 0.8rem; margin: 0 0 1.6rem; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 1.1rem; }
.tiles b { display: block; font-size: 1.35rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 0.8rem; }
nav ol { padding-left: 1.3rem; margin: 0; } nav li { margin: 0.35rem 0; }
nav small a { color: var(--soft); }
.scroll { overflow-x: auto; } .scroll + .scroll { margin-top: 1.4rem; }
table { border-collapse: collapse; font-size: 0.83rem; line-height: 1.4; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--soft); border-bottom: 1.5px solid var(--line);
  padding: 0.45rem 0.7rem; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: 0.45rem 0.7rem; vertical-align: top; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.means th.n, .means td.n { white-space: normal; }
.interval { display: inline-block; white-space: nowrap; }
.means th, .means td { padding: 0.4rem 0.5rem; font-size: 0.78rem; }
.means td:first-child, .means td:nth-child(2) { white-space: nowrap; }
.means th:first-child, .means td:first-child { position: sticky; left: 0; background: var(--paper); }
tbody tr:hover { background: color-mix(in srgb, var(--accent) 6%, transparent); }
.verdict { white-space: nowrap; font-weight: 600; }
.verdict i { display: inline-block; width: 1.5em; height: 1.5em; line-height: 1.5em; text-align: center;
  border-radius: 50%; font-style: normal; margin-right: 0.3em; }
.holds { color: var(--good); } .holds i { background: var(--good-bg); }
.fails { color: var(--bad); } .fails i { background: var(--bad-bg); }
.undecided { color: var(--open); } .undecided i { background: var(--open-bg); }
.tag { border: 1px solid var(--line); border-radius: 4px; color: var(--soft); font-size: 0.78em; padding: 0 0.35em; }
figure { margin: 2.2rem 0; } figure img { display: block; width: min(100%, 34rem); background: #fff;
  border: 1px solid var(--line); border-radius: 8px; padding: 0.8rem; }
figure.wide img { width: 100%; max-width: 54rem; }
figcaption { color: var(--soft); font-size: 0.86rem; margin-top: 0.6rem; max-width: 44rem; }
figcaption b { color: var(--ink); }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.4rem 0; background: var(--card); }
summary { cursor: pointer; padding: 0.45rem 0.9rem; font-size: 0.88rem; }
details dl { margin: 0.2rem 0.9rem 0.9rem; } details p { margin: 0 0.9rem; font-size: 0.82rem; color: var(--soft); }
pre { margin: 0; padding: 0.7rem 0.9rem; overflow-x: auto; max-height: 24rem;
  font: 0.76rem/1.5 "JetBrains Mono", Consolas, "DejaVu Sans Mono", monospace; }
code { font: 0.85em Consolas, "DejaVu Sans Mono", monospace; color: var(--soft); }
dl { font-size: 0.9rem; } dt { font-weight: 600; margin-top: 0.5rem; } dd { margin: 0; color: var(--soft); }
.errors { font-size: 0.85rem; color: var(--bad); }
footer { margin-top: 4rem; color: var(--soft); font-size: 0.8rem; }
@media (max-width: 40rem) { main { padding: 1.5rem 1rem 3rem; } h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; }
  th, td { padding: 0.35rem 0.5rem; } .tiles div { padding: 0.4rem 0.8rem; }
  figure img { padding: 0.3rem; }
  .means thead, .claims thead { display: none; } .means tr, .claims tr { display: block; padding: 0.5rem 0; }
  .means td, .claims td { display: block; border: 0; text-align: left; }
  .means td[data-label], .claims td[data-label] { display: flex; justify-content: space-between; gap: 1rem; }
  .means td::before, .claims td::before { content: attr(data-label); color: var(--soft); }
  .means tr, .claims tr { border-bottom: 1.5px solid var(--line); } }
p, li, dd, figcaption, h1, h2, h3, summary { overflow-wrap: anywhere; }
@media print { body { background: #fff; } details { display: none; } }
"""
