//! Sends rows with OpenTelemetry's own exporters: rows ENDPOINT PROTOCOL COMPRESSION RUN ROWS BATCH
//!
//! It sends half of them, says so, and waits for a line before it sends the others. Its last line is the number of
//! rows that the exporter delivered, as far as it knows.
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider};
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Compression, LogExporter, Protocol, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{self, BatchConfigBuilder, BatchLogProcessor, LogBatch, SdkLoggerProvider};
use opentelemetry_sdk::Resource;

static DELIVERED: AtomicUsize = AtomicUsize::new(0);

/// An exporter that counts what it delivers.
#[derive(Debug)]
struct Counting(LogExporter);

impl logs::LogExporter for Counting {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let count = batch.iter().count();
        self.0.export(batch).await.inspect_err(|error| eprintln!("{error}"))?;
        DELIVERED.fetch_add(count, Ordering::SeqCst);
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn exporter(endpoint: &str, protocol: &str, compression: &str) -> LogExporter {
    let gzip = compression == "gzip";
    let built = if protocol == "grpc" {
        let builder = LogExporter::builder().with_tonic().with_endpoint(endpoint);
        if gzip {
            builder.with_compression(Compression::Gzip).build()
        } else {
            builder.build()
        }
    } else {
        let protocol = if protocol == "http/json" { Protocol::HttpJson } else { Protocol::HttpBinary };
        let builder =
            LogExporter::builder().with_http().with_endpoint(format!("{endpoint}/v1/logs")).with_protocol(protocol);
        if gzip {
            builder.with_compression(Compression::Gzip).build()
        } else {
            builder.build()
        }
    };
    built.unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, protocol, compression, run, rows, batch] = &arguments[..] else { panic!("six arguments") };
    let (rows, batch): (i64, i64) = (rows.parse().unwrap(), batch.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let exporter = {
        let _guard = (protocol == "grpc").then(|| runtime.enter());
        exporter(endpoint, protocol, compression)
    };
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(rows as usize)
        .with_max_export_batch_size(batch as usize)
        .with_scheduled_delay(Duration::from_secs(60))
        .build();
    let names = [("service.name", "rust"), ("rl.run.id", run.as_str()), ("rl.run.project", "p")];
    let provider = SdkLoggerProvider::builder()
        .with_resource(
            Resource::builder_empty().with_attributes(names.map(|(k, v)| KeyValue::new(k, v.to_owned()))).build(),
        )
        .with_log_processor(BatchLogProcessor::builder(Counting(exporter)).with_batch_config(config).build())
        .build();
    let logger = provider.logger("trainer");
    for step in 0..rows {
        if step == rows / 2 && batch < rows {
            let _ = provider.force_flush();
            println!("half");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        let mut record = logger.create_log_record();
        let values = HashMap::from([
            (Key::new("loss"), AnyValue::Double(1.0 / (step + 3) as f64)),
            (Key::new("tokens"), AnyValue::Int(step)),
        ]);
        record.set_event_name("rl.step.metrics");
        record.add_attribute("rl.loop.iteration", step);
        record.add_attribute("rl.step.values", AnyValue::Map(Box::new(values)));
        logger.emit(record);
    }
    let _ = provider.shutdown_with_timeout(Duration::from_secs(60));
    println!("{}", DELIVERED.load(Ordering::SeqCst));
}
