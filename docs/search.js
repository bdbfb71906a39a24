// Material hands a query to its worker as it is typed, and there a hyphen is an operator: `--dry-run`
// would exclude what it names, `warm-up` would find all that has a word with `up`.
const send = Worker.prototype.postMessage;
const QUERY = 2;
Worker.prototype.postMessage = function (message) {
  if (message.type === QUERY)
    message.data = message.data.replace(/(^|\s)-+/g, "$1").replace(/(\w+)-(?=\w)/g, "+$1 ");
  send.call(this, message);
};
