// SPDX-License-Identifier: Apache-2.0
// node tiny_dom.js PAGE.html: runs the script of a page of ddprun --report in as much of a document as it uses, and prints the
// document that it drew, as HTML. With a second argument the arrow keys first read each plot at its first and last value.
"use strict";
const fs = require("fs");

const escape = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");

class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], style: {} });
  }
  setAttribute(name, value) {
    if (!/^[a-zA-Z-]+$/.test(name)) throw new Error(`no name of an attribute: ${name}`);
    this.attributes[name] = String(value);
  }
  append(...children) {
    for (const child of children)
      if (typeof child !== "string" && !(child instanceof Element)) throw new Error(`no child of ${this.tag}: ${child}`);
    this.children.push(...children);
  }
  set hidden(value) {
    if (value) this.attributes.hidden = "";
    else delete this.attributes.hidden;
  }
  set textContent(text) {
    this.children = [String(text)];
  }
  get textContent() {
    return this.children.map(child => (typeof child === "string" ? child : child.textContent)).join("");
  }
  all(name) {
    const found = this.attributes.class === name ? [this] : [];
    return found.concat(...this.children.map(child => (typeof child === "string" ? [] : child.all(name))));
  }
  get html() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${escape(value)}"`).join("");
    return `<${this.tag}${attributes}>${this.children.map(child => child.html ?? escape(child)).join("")}</${this.tag}>`;
  }
}

const page = fs.readFileSync(process.argv[2], "utf8");
const [, numbers] = page.match(/<script type="application\/json" id="run">(.*?)<\/script>/s);
const [, script] = page.match(/<script>(.*?)<\/script>/s);
const main = new Element("main"), json = new Element("script");
json.textContent = numbers;
const document = {
  title: "",
  getElementById: id => ({ run: json, page: main })[id],
  createElement: tag => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
};
new Function("document", script)(document);
if (process.argv[3]) {
  for (const plot of main.all("plot")) {
    const [words] = plot.all("read"), [cursor] = plot.all("cursor");
    for (const key of ["ArrowRight", "End"]) {
      plot.onkeydown({ key, preventDefault() {} });
      console.log(JSON.stringify({ key, words: words.textContent, at: cursor.style.left, hidden: "hidden" in words.attributes }));
    }
    plot.onkeydown({ key: "Escape" });
    console.log(JSON.stringify({ key: "Escape", hidden: "hidden" in words.attributes }));
  }
} else {
  console.log(`<title>${escape(document.title)}</title>${main.html}`);
}
