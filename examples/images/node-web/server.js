// Counts visits; answers with the name of the replica.
const http = require("http");
const os = require("os");

let visits = 0;
const server = http.createServer((request, response) => {
  if (request.url === "/health") {
    response.end("ok");
    return;
  }
  visits += 1;
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ host: os.hostname(), visits, path: request.url }));
});
server.listen(Number(process.env.PORT || 3000), "0.0.0.0", () => console.log("listening"));
process.on("SIGTERM", () => server.close(() => process.exit(0)));
