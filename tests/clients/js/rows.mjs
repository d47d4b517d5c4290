// Sends rows with OpenTelemetry's own exporters: node rows.mjs ENDPOINT PROTOCOL COMPRESSION RUN ROWS BATCH
//
// It sends half of them, says so, and waits for a line before it sends the others. Its last line is the number of
// rows that the exporter delivered, as far as it knows.
import { createInterface } from "node:readline/promises";
import { LoggerProvider, BatchLogRecordProcessor } from "@opentelemetry/sdk-logs";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { diag, DiagConsoleLogger, DiagLogLevel } from "@opentelemetry/api";

const [endpoint, protocol, compression, run, ...sizes] = process.argv.slice(2);
const [rows, batch] = sizes.map(Number);
diag.setLogger(new DiagConsoleLogger(), DiagLogLevel.WARN);
const packages = { "http/protobuf": "proto", "http/json": "http", grpc: "grpc" };
const { OTLPLogExporter } = await import(`@opentelemetry/exporter-logs-otlp-${packages[protocol]}`);
const url = protocol === "grpc" ? endpoint : `${endpoint}/v1/logs`;
const exporter = new OTLPLogExporter({ url, compression });
let delivered = 0;
const counting = {
  export: (records, done) =>
    exporter.export(records, (result) => {
      if (result.code === 0) delivered += records.length;
      done(result);
    }),
  forceFlush: () => exporter.forceFlush(),
  shutdown: () => exporter.shutdown(),
};
const processor = new BatchLogRecordProcessor({
  exporter: counting,
  maxQueueSize: rows,
  maxExportBatchSize: batch,
  scheduledDelayMillis: 60000,
});
const provider = new LoggerProvider({
  resource: resourceFromAttributes({ "service.name": "js", "rl.run.id": run, "rl.run.project": "p" }),
  processors: [processor],
});
const logger = provider.getLogger("trainer");
for (let step = 0; step < rows; step++) {
  if (step === rows / 2 && batch < rows) {
    await provider.forceFlush();
    process.stdout.write("half\n");
    const input = createInterface(process.stdin);
    await input[Symbol.asyncIterator]().next();
    input.close();
  }
  const values = { loss: 1 / (step + 3), tokens: step };
  logger.emit({ eventName: "rl.step.metrics", attributes: { "rl.loop.iteration": step, "rl.step.values": values } });
}
try {
  await provider.forceFlush();
} catch {
  // counted
}
await provider.shutdown();
process.stdout.write(`${delivered}\n`);
process.exit();
