// Ask the search of a finished site, by the site's own program: node search.js SITE QUERY ...
// Prints for every query a line of JSON: the pages found, best first.
const fs = require("fs"), vm = require("vm");
const [site, ...queries] = process.argv.slice(2);
const workers = `${site}/assets/javascripts/workers`;
const program = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));
const [READY, QUERY, RESULT] = [1, 2, 3]; // Material for MkDocs' kinds of messages; 0 is the index
let listen, asked = 0;
const self = {
  addEventListener: (_, listener) => (listen = listener),
  importScripts: () => {},
  postMessage: ({ type, data }) => {
    if (type === RESULT) console.log(JSON.stringify(data.items.map(([page]) => page.location)));
    if ((type === READY || type === RESULT) && asked < queries.length) listen({ data: { type: QUERY, data: queries[asked++] } });
  },
};
vm.runInNewContext(fs.readFileSync(`${workers}/${program}`, "utf8"), Object.assign(self, { self, console }));
const index = JSON.parse(fs.readFileSync(`${site}/search/search_index.json`, "utf8"));
listen({ data: { type: 0, data: { ...index, options: {} } } });
