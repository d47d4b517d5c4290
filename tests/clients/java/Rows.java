import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.KeyValue;
import io.opentelemetry.api.common.Value;
import io.opentelemetry.api.logs.Logger;
import io.opentelemetry.exporter.otlp.http.logs.OtlpHttpLogRecordExporter;
import io.opentelemetry.exporter.otlp.logs.OtlpGrpcLogRecordExporter;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.logs.SdkLoggerProvider;
import io.opentelemetry.sdk.logs.data.LogRecordData;
import io.opentelemetry.sdk.logs.export.BatchLogRecordProcessor;
import io.opentelemetry.sdk.logs.export.LogRecordExporter;
import io.opentelemetry.sdk.resources.Resource;
import java.time.Duration;
import java.util.Collection;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Sends rows with OpenTelemetry's own exporters: Rows ENDPOINT PROTOCOL COMPRESSION RUN ROWS BATCH
 *
 * <p>It sends half of them, says so, and waits for a line before it sends the others. Its last line is the number of
 * rows that the exporter delivered, as far as it knows.
 */
public final class Rows {
  /** An exporter that counts what it delivers. */
  private record Counting(LogRecordExporter exporter, AtomicInteger delivered) implements LogRecordExporter {
    @Override
    public CompletableResultCode export(Collection<LogRecordData> records) {
      int count = records.size();
      CompletableResultCode result = exporter.export(records);
      return result.whenComplete(() -> delivered.addAndGet(result.isSuccess() ? count : 0));
    }

    @Override
    public CompletableResultCode flush() {
      return exporter.flush();
    }

    @Override
    public CompletableResultCode shutdown() {
      return exporter.shutdown();
    }
  }

  private static LogRecordExporter exporter(String endpoint, String protocol, String compression) {
    return protocol.equals("grpc")
        ? OtlpGrpcLogRecordExporter.builder().setEndpoint(endpoint).setCompression(compression).build()
        : OtlpHttpLogRecordExporter.builder().setEndpoint(endpoint + "/v1/logs").setCompression(compression).build();
  }

  public static void main(String[] arguments) throws Exception {
    int rows = Integer.parseInt(arguments[4]);
    int batch = Integer.parseInt(arguments[5]);
    Counting counting = new Counting(exporter(arguments[0], arguments[1], arguments[2]), new AtomicInteger());
    Attributes resource =
        Attributes.builder()
            .put("service.name", "java")
            .put("rl.run.id", arguments[3])
            .put("rl.run.project", "p")
            .build();
    BatchLogRecordProcessor processor =
        BatchLogRecordProcessor.builder(counting)
            .setMaxQueueSize(rows)
            .setMaxExportBatchSize(batch)
            .setScheduleDelay(Duration.ofMinutes(1))
            .setExporterTimeout(Duration.ofMinutes(1))
            .build();
    SdkLoggerProvider provider =
        SdkLoggerProvider.builder().setResource(Resource.create(resource)).addLogRecordProcessor(processor).build();
    Logger logger = provider.get("trainer");
    for (int step = 0; step < rows; step++) {
      if (step == rows / 2 && batch < rows) {
        provider.forceFlush().join(1, TimeUnit.MINUTES);
        System.out.println("half");
        System.in.read();
      }
      Value<?> values =
          Value.of(KeyValue.of("loss", Value.of(1.0 / (step + 3))), KeyValue.of("tokens", Value.of(step)));
      logger
          .logRecordBuilder()
          .setEventName("rl.step.metrics")
          .setAttribute(AttributeKey.longKey("rl.loop.iteration"), (long) step)
          .setAttribute(AttributeKey.valueKey("rl.step.values"), values)
          .emit();
    }
    provider.shutdown().join(1, TimeUnit.MINUTES);
    System.out.println(counting.delivered.get());
    System.exit(0);
  }
}
