// SPDX-License-Identifier: Apache-2.0
// Colours tell apart also for who does not see red and green, and have enough contrast on both grounds.
#include "ddprun/page.hpp"

namespace ddp::ddprun {

namespace {

constexpr const char* kStyle = R"css(
:root{--ground:#f6f8fa;--card:#fff;--ink:#1f2933;--soft:#52606d;--line:#e1e7ec;--good:#1a7f4b;--bad:#c0362c;--note:#2f6fc0;
--c0:#2f7ed8;--c1:#e07b1f;--c2:#1a9988;--c3:#8e5bd0;--c4:#c2407a;--c5:#7f8c1d;--c6:#5a6b7b;--c7:#a0522d;--mono:ui-monospace,
SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
@media(prefers-color-scheme:dark){:root{--ground:#131416;--card:#1c1f24;--ink:#e4e7eb;--soft:#a3aeba;--line:#30363d;--good:#4cc38a;
--bad:#ff8177;--note:#78b4f8;--c0:#4f9cf0;--c1:#f2a14d;--c2:#3fc5b0;--c3:#b18cf0;--c4:#ef7bb0;--c5:#bccb4f;--c6:#a9b6c3;--c7:#d99a70}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 40px}
header{margin-bottom:20px}.brand{margin:0;color:var(--soft);font-size:13px;letter-spacing:.03em}
h1{margin:2px 0 6px;font-size:30px;line-height:1.2;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{margin:0;font-size:16px}.lead{margin:0 0 12px;color:var(--soft)}
.state{display:inline-block;margin-right:6px;padding:1px 10px;border-radius:99px;border:1px solid currentColor;font-weight:600;
font-size:13px}.good{color:var(--good)}.bad{color:var(--bad)}.note{color:var(--note)}
pre{margin:0;font:13px/1.55 var(--mono);white-space:pre-wrap;overflow-wrap:anywhere}
.command{padding:9px 13px;border:1px solid var(--line);border-radius:8px;background:var(--card)}.command::before{content:"$ ";
color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 14px}
.tile{display:flex;flex-direction:column;padding:13px 16px;background:var(--card);border:1px solid var(--line);border-radius:12px}
.tile dt{order:1;font-size:13px;font-weight:600}.tile dd{margin:0;font-size:25px;font-weight:650;line-height:1.25;
letter-spacing:-.01em;font-variant-numeric:tabular-nums}.tile .note{order:2;color:var(--soft);font-size:12px;font-weight:400;
letter-spacing:0}
.card{min-width:0;margin-bottom:14px;padding:16px 18px;background:var(--card);border:1px solid var(--line);border-radius:12px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:14px;margin-bottom:14px}
.two .card{margin:0;display:flex;flex-direction:column}.two:empty{display:none}.two .card:last-child:nth-child(odd){grid-column:1/-1}
.say{margin:2px 0 10px;color:var(--soft);font-size:14px}.hint{margin:8px 0 0;color:var(--soft);font-size:12px}
.findings{list-style:none;margin:10px 0 0;padding:0;display:grid;gap:8px}.findings li{display:flex;gap:10px;align-items:baseline}
.findings b{flex:none;width:20px;height:20px;border:1.5px solid currentColor;border-radius:50%;text-align:center;font-size:12px;
line-height:17px}.findings span{color:var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:0 0 10px;padding:0;font-size:12px;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;margin-right:6px;border-radius:3px}
.dash{display:inline-block;height:11px;margin:0 8px 0 3px;border-left:1.5px dashed var(--bad);vertical-align:-1px}
.plot{position:relative;padding:8px 22px 24px 68px;border-radius:6px;margin-top:auto}.pane{position:relative;height:190px}
.plot svg{display:block;width:100%;height:100%;overflow:visible}
svg path{fill:none;vector-effect:non-scaling-stroke}.grid{stroke:var(--line)}.line{stroke-width:2;stroke-linejoin:round;
stroke-linecap:round}svg .area{stroke:none;opacity:.22}.event{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:4 3}
.c0{background:var(--c0)}.s0{stroke:var(--c0)}.f0{fill:var(--c0)}.c1{background:var(--c1)}.s1{stroke:var(--c1)}.f1{fill:var(--c1)}
.c2{background:var(--c2)}.s2{stroke:var(--c2)}.f2{fill:var(--c2)}.c3{background:var(--c3)}.s3{stroke:var(--c3)}.f3{fill:var(--c3)}
.c4{background:var(--c4)}.s4{stroke:var(--c4)}.f4{fill:var(--c4)}.c5{background:var(--c5)}.s5{stroke:var(--c5)}.f5{fill:var(--c5)}
.c6{background:var(--c6)}.s6{stroke:var(--c6)}.f6{fill:var(--c6)}.c7{background:var(--c7)}.s7{stroke:var(--c7)}.f7{fill:var(--c7)}
.y,.x{position:absolute;color:var(--soft);font-size:11.5px;font-variant-numeric:tabular-nums}
.y{left:0;width:60px;top:8px;height:190px}.x{left:68px;right:22px;bottom:0;height:20px}
.y span,.x span{position:absolute;white-space:nowrap}.y span{right:0;transform:translateY(50%)}.x span{transform:translateX(-50%)}
.cursor{position:absolute;top:0;bottom:0;border-left:1px solid var(--soft);pointer-events:none}
.read{position:absolute;top:4px;padding:4px 9px;border:1px solid var(--line);border-radius:7px;background:var(--card);
font-size:12px;white-space:pre;box-shadow:0 2px 8px #0002;pointer-events:none;z-index:1}
[hidden]{display:none}
.bars{max-height:420px}.bar{display:grid;grid-template-columns:68px 1fr 92px;gap:10px;align-items:center;padding:3px 0;font-size:13px}
.bar .name{color:var(--soft);white-space:nowrap}.out .name{color:var(--ink);font-weight:700}
.track{display:flex;height:16px;border-radius:4px;overflow:hidden;background:var(--ground)}.track i{display:block;height:100%}
.apart{flex-direction:column;height:20px;gap:2px}.apart i{height:9px;border-radius:0 3px 3px 0}
.bar .value{font-variant-numeric:tabular-nums;white-space:nowrap;font-size:12px;text-align:right}
details{margin-top:10px;font-size:13px}summary{cursor:pointer;color:var(--soft)}
.scroll{overflow:auto}details .scroll{max-height:260px;margin-top:6px}
table{width:100%;border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}caption{position:absolute;left:-9999px}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}th:first-child{text-align:left}
td.long{white-space:normal;min-width:16ch;max-width:26ch;text-align:left}thead th{position:sticky;top:0;background:var(--card);color:var(--soft);font-weight:600}
#ranks .scroll{margin-top:8px}
.story{list-style:none;margin:10px 0 0;padding:0;border-left:2px solid var(--line)}.story li{display:flex;gap:14px;padding:3px 0 3px 14px}
.story time{flex:none;min-width:74px;white-space:nowrap;color:var(--soft);font-variant-numeric:tabular-nums}.words{padding:8px 0 0}
footer{margin-top:20px;color:var(--soft);font-size:13px}a{color:var(--note)}
:focus-visible{outline:2px solid var(--note);outline-offset:2px}
@media(max-width:560px){main{padding:18px 12px 30px}h1{font-size:24px}.tiles{grid-template-columns:1fr 1fr;gap:8px}.tile{padding:10px 12px}
.tile dd{font-size:21px}.tile .note{font-size:12px}.card{padding:14px 12px}.plot{padding-left:58px}.y{width:50px}.x{left:58px}.bar{grid-template-columns:56px 1fr 84px;gap:8px}
.x span:nth-child(even){display:none}}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}}
)css";

constexpr const char* kScript = R"js(
for (const plot of document.querySelectorAll(".plot")) {
  const rows = [...plot.parentElement.querySelectorAll("tbody tr")];
  const names = [...plot.parentElement.querySelectorAll("thead th")].map(cell => cell.textContent);
  const pane = plot.querySelector(".pane"), cursor = plot.querySelector(".cursor"), read = plot.querySelector(".read");
  let at = -1;
  const show = row => {
    at = row;
    cursor.hidden = read.hidden = row < 0 || !rows.length;
    if (read.hidden) return;
    const x = rows[row].dataset.x / 10, cells = [...rows[row].children].map(cell => cell.textContent);
    cursor.style.left = x + "%";
    read.style.left = x < 50 ? `calc(${x}% + 8px)` : "auto";
    read.style.right = x < 50 ? "auto" : `calc(${100 - x}% + 8px)`;
    read.textContent = cells.map((cell, i) => i ? `${names[i]}: ${cell}` : cell).join("\n");
  };
  pane.onpointermove = event => {
    const box = pane.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * 1000;
    let best = 0;
    rows.forEach((row, i) => { if (Math.abs(row.dataset.x - x) < Math.abs(rows[best].dataset.x - x)) best = i; });
    show(rows.length ? best : -1);
  };
  pane.onpointerleave = () => show(-1);
  plot.onblur = () => show(-1);
  plot.onkeydown = event => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: rows.length - 1 }[event.key];
    if (event.key === "Escape") show(-1);
    if (to === undefined || !rows.length) return;
    event.preventDefault();
    show(Math.min(Math.max(to, 0), rows.length - 1));
  };
}
)js";

}  // namespace

const char* page_style() noexcept { return kStyle; }
const char* page_script() noexcept { return kScript; }

}  // namespace ddp::ddprun
