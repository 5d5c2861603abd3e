// A program with OpenTelemetry's JavaScript SDK: spans under the TRACEPARENT that it was given.
const { context, propagation, trace } = require("@opentelemetry/api");
const { BatchSpanProcessor, NodeTracerProvider } = require("@opentelemetry/sdk-trace-node");
const kind = process.argv[2] === "json" ? "http" : "proto";
const { OTLPTraceExporter } = require(`@opentelemetry/exporter-trace-otlp-${kind}`);

const provider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
provider.register();
const parent = propagation.extract(context.active(), { traceparent: process.env.TRACEPARENT });
const tracer = trace.getTracer("traced");
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

context.with(parent, () =>
  tracer.startActiveSpan("Outer", async (outer) => {
    const held = Buffer.alloc(80 << 20, 1);
    await pause(400);
    await tracer.startActiveSpan("Inner", async (inner) => {
      inner.setAttribute("held", held.length);
      await pause(300);
      inner.setStatus({ code: 2, message: "as intended" });
      inner.end();
    });
    outer.end();
    await provider.shutdown();
  }),
);
