// Command rows sends rows with OpenTelemetry's own exporters: rows ENDPOINT PROTOCOL COMPRESSION RUN ROWS BATCH
//
// It sends half of them, says so, and waits for a line before it sends the others. Its last line is the number
// of rows that the exporter delivered, as far as it knows.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdk "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
)

// counting counts what the exporter delivers.
type counting struct {
	sdk.Exporter
	delivered int
}

func (c *counting) Export(ctx context.Context, records []sdk.Record) error {
	err := c.Exporter.Export(ctx, records)
	if err == nil {
		c.delivered += len(records)
	}
	return err
}

func exporter(ctx context.Context, endpoint, protocol, compression string) (sdk.Exporter, error) {
	if protocol == "grpc" {
		options := []otlploggrpc.Option{otlploggrpc.WithEndpointURL(endpoint)}
		if compression == "gzip" {
			options = append(options, otlploggrpc.WithCompressor("gzip"))
		}
		return otlploggrpc.New(ctx, options...)
	}
	options := []otlploghttp.Option{otlploghttp.WithEndpointURL(endpoint + "/v1/logs")}
	if compression == "gzip" {
		options = append(options, otlploghttp.WithCompression(otlploghttp.GzipCompression))
	}
	return otlploghttp.New(ctx, options...)
}

func main() {
	endpoint, protocol, compression, run := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	rows, _ := strconv.Atoi(os.Args[5])
	batch, _ := strconv.Atoi(os.Args[6])
	ctx := context.Background()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { fmt.Fprintln(os.Stderr, err) }))
	to, err := exporter(ctx, endpoint, protocol, compression)
	if err != nil {
		panic(err)
	}
	counted := &counting{Exporter: to}
	provider := sdk.NewLoggerProvider(
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "go"),
			attribute.String("rl.run.id", run),
			attribute.String("rl.run.project", "p"),
		)),
		sdk.WithProcessor(sdk.NewBatchProcessor(
			counted, sdk.WithMaxQueueSize(rows), sdk.WithExportMaxBatchSize(batch), sdk.WithExportInterval(60e9),
		)),
	)
	logger := provider.Logger("trainer")
	for step := range rows {
		if step == rows/2 && batch < rows {
			_ = provider.ForceFlush(ctx)
			fmt.Println("half")
			bufio.NewReader(os.Stdin).ReadString('\n')
		}
		var record log.Record
		record.SetEventName("rl.step.metrics")
		record.AddAttributes(
			log.Int("rl.loop.iteration", step),
			log.Map("rl.step.values", log.Float64("loss", 1/float64(step+3)), log.Int("tokens", step)),
		)
		logger.Emit(ctx, record)
	}
	_ = provider.Shutdown(ctx)
	fmt.Println(counted.delivered)
}
