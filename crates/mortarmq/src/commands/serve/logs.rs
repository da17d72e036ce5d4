//! The node's log on stderr: text for people, or one JSON object per line for machines.

use std::fmt::Write as _;
use std::io::IsTerminal;

use mortarmq_server::Config;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Logs from now on, as the configuration says.
pub(super) fn begin(config: &Config) {
    let filter = EnvFilter::new(format!("warn,mortarmq={}", config.log_level));
    let stderr = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    if config.log_format != "json" {
        stderr.init();
        return;
    }
    stderr.event_format(Json).init();
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::force_capture().to_string();
        tracing::error!(backtrace, "{panic}");
    }));
}

/// `{"time", "level", "target", "message", "fields": {…}}`.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = serde_json::json!({
            "time": time,
            "level": metadata.level().as_str().to_ascii_lowercase(),
            "target": metadata.target(),
            "message": fields.message,
            "fields": fields.others,
        });
        writeln!(writer, "{line}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.add(field, Value::from(format!("{value:?}")));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.add(field, Value::from(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::from(value));
    }
}
