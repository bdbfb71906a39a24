"use strict";
// Opens the load when it has begun.
setInterval(() => fetch("/live").then((answer) => answer.redirected && location.reload(), () => {}), 1000);
