// A server's span below a step of the trainer: node span.mjs ENDPOINT TRACE_ID SPAN_ID
import { BasicTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { ROOT_CONTEXT, SpanKind, trace } from "@opentelemetry/api";

const [endpoint, traceId, spanId] = process.argv.slice(2);
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ "service.name": "js-server" }),
  spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter({ url: `${endpoint}/v1/traces` }))],
});
const parent = trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: 1, isRemote: true });
provider.getTracer("http", "2.0").startSpan("POST /generate", { kind: SpanKind.SERVER }, parent).end();
await provider.shutdown();
