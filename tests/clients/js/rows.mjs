// Sends rows with OpenTelemetry's own exporters: node rows.mjs ENDPOINT PROTOCOL COMPRESSION ROWS RUN
import { LoggerProvider, BatchLogRecordProcessor } from "@opentelemetry/sdk-logs";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { diag, DiagConsoleLogger, DiagLogLevel } from "@opentelemetry/api";

const [endpoint, protocol, compression, rows, run] = process.argv.slice(2);
diag.setLogger(new DiagConsoleLogger(), DiagLogLevel.WARN);
const packages = { "http/protobuf": "proto", "http/json": "http", grpc: "grpc" };
const { OTLPLogExporter } = await import(`@opentelemetry/exporter-logs-otlp-${packages[protocol]}`);
const url = protocol === "grpc" ? endpoint : `${endpoint}/v1/logs`;
const provider = new LoggerProvider({
  resource: resourceFromAttributes({ "service.name": "js", "rl.run.id": run, "rl.run.project": "p" }),
  processors: [new BatchLogRecordProcessor({ exporter: new OTLPLogExporter({ url, compression }), maxQueueSize: Number(rows) })],
});
const logger = provider.getLogger("trainer");
for (let step = 0; step < Number(rows); step++) {
  const values = { loss: 1 / (step + 3), tokens: step };
  logger.emit({ eventName: "rl.step.metrics", attributes: { "rl.loop.iteration": step, "rl.step.values": values } });
}
await provider.forceFlush();
await provider.shutdown();
