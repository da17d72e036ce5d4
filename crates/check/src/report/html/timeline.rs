//! The timeline of a finding: operations as bars, leases as bands, faults as shades.

use serde_json::Value;

use super::{escaped, push as write};
use crate::context::nanoseconds;
use crate::report::{FaultWindow, Finding, RecordLine};

/// One record, as it is drawn.
struct Bar {
    op: String,
    label: String,
    delivery_id: Option<u64>,
    call: u64,
    ret: Option<u64>,
    /// Until when its lease lasts, as far as it says.
    lease_until: Option<u64>,
    is_proof: bool,
}

/// Where a time is drawn.
struct Axis {
    /// Times and their places, ascending.
    points: Vec<(u64, f64)>,
}

/// Adds the timeline of a finding to a page.
pub(super) fn push(page: &mut String, finding: &Finding, faults: &[FaultWindow]) {
    let lines: &[RecordLine] = if finding.life.is_empty() { &finding.records } else { &finding.life };
    let mut bars: Vec<Bar> = lines.iter().filter_map(|line| bar(line, finding)).collect();
    if bars.is_empty() {
        return;
    }
    bars.sort_by_key(|bar| (bar.call, bar.ret));
    end_settled_leases(&mut bars);
    let axis = Axis::new(&bars);
    let start = bars[0].call;
    let height = TOP + ROW * bars.len() as f64 + 8.0;
    write(page, format_args!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">"));
    for fault in faults {
        let (from, to) = (axis.place(fault.call), axis.place(fault.ret));
        if to > from {
            let (kind, width) = (escaped(&fault.kind), to - from);
            write(
                page,
                format_args!(
                    "<rect class=\"fault\" x=\"{from:.1}\" y=\"0\" width=\"{width:.1}\" height=\"{height}\"><title>fault: {kind}</title></rect>"
                ),
            );
            write(page, format_args!("<text class=\"time\" x=\"{from:.1}\" y=\"10\">{kind}</text>"));
        }
    }
    for (row, bar) in bars.iter().enumerate() {
        push_bar(page, bar, TOP + ROW * row as f64, start, &axis);
    }
    page.push_str("</svg>");
}

fn push_bar(page: &mut String, bar: &Bar, y: f64, start: u64, axis: &Axis) {
    let from = axis.place(bar.call);
    let to = bar.ret.map_or(WIDTH - 4.0, |ret| axis.place(ret)).max(from + 3.0);
    if let Some(until) = bar.lease_until {
        let width = (axis.place(until) - from).max(0.0);
        let height = ROW - 4.0;
        write(
            page,
            format_args!(
                "<rect class=\"lease\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\"><title>lease until {} at least</title></rect>",
                since(start, until)
            ),
        );
    }
    let class = if KNOWN.contains(&bar.op.as_str()) { bar.op.as_str() } else { "other" };
    let open = if bar.ret.is_none() { " open" } else { "" };
    let proof = if bar.is_proof { " proof" } else { "" };
    let (width, height) = (to - from, ROW - 12.0);
    let label = escaped(&bar.label);
    write(
        page,
        format_args!(
            "<rect class=\"{class}{open}{proof}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height}\"><title>{label}</title></rect>",
            y + 4.0
        ),
    );
    let shown = escaped(&shortened(&bar.label));
    write(page, format_args!("<text x=\"4\" y=\"{:.1}\"><title>{label}</title>{shown}</text>", y + 14.0));
    let ret = bar.ret.map_or_else(|| "never".to_owned(), |ret| since(start, ret));
    write(
        page,
        format_args!(
            "<text class=\"time\" x=\"{LEFT}\" y=\"{:.1}\" text-anchor=\"end\"><title>call {}</title>{} … {ret}</text>",
            y + 14.0,
            bar.call,
            since(start, bar.call)
        ),
    );
}

fn bar(line: &RecordLine, finding: &Finding) -> Option<Bar> {
    let record: Value = serde_json::from_str(&line.text).ok()?;
    let number = |field: &str| record.get(field).and_then(Value::as_u64);
    let text = |field: &str| record.get(field).and_then(Value::as_str).unwrap_or("");
    let call = number("call").or_else(|| number("at"))?;
    let op = text("op").to_owned();
    let is_elsewhere = finding.path.as_deref().is_some_and(|path| ![path, ""].contains(&text("path")));
    let is_proof = finding.records.iter().any(|proof| proof.place == line.place);
    if is_elsewhere && !is_proof {
        // What befell the message on another path is another story.
        return None;
    }
    let delivery_id = number("delivery_id");
    let mut label = op.clone();
    if let Some(id) = delivery_id {
        label.push_str(&format!(" #{id}"));
    }
    for field in ["kind", "cause", "to", "outcome", "msg", "client"] {
        let is_plain = field == "msg" && finding.other.is_none();
        if !text(field).is_empty() && text(field) != "ok" && !is_plain {
            label.push(' ');
            label.push_str(text(field));
        }
    }
    let lease_ns = number("lease_ms").map(nanoseconds).or(finding.lease_ns);
    let has_lease = matches!(op.as_str(), "deliver" | "extend");
    let lease_until = lease_ns.filter(|_| has_lease).map(|lease| call.saturating_add(lease));
    Some(Bar { op, label, delivery_id, call, ret: number("ret"), lease_until, is_proof })
}

/// A lease is drawn up to the first ack or nack that names its delivery, as it may have ended there.
fn end_settled_leases(bars: &mut [Bar]) {
    let is_end = |bar: &&Bar| matches!(bar.op.as_str(), "ack" | "nack");
    let ends: Vec<(u64, u64)> =
        bars.iter().filter(is_end).filter_map(|bar| Some((bar.delivery_id?, bar.call))).collect();
    for bar in bars {
        let end =
            ends.iter().filter(|(id, call)| Some(*id) == bar.delivery_id && *call >= bar.call).map(|(_, call)| *call);
        bar.lease_until = bar.lease_until.map(|until| end.fold(until, u64::min));
    }
}

/// A time, in milliseconds since the timeline's first.
fn since(start: u64, time: u64) -> String {
    let after = time.saturating_sub(start);
    format!("+{}.{:03} ms", after / 1_000_000, after / 1_000 % 1_000)
}

fn shortened(label: &str) -> String {
    if label.chars().count() <= MAX_LABEL {
        return label.to_owned();
    }
    label.chars().take(MAX_LABEL - 1).chain(['…']).collect()
}

/// What fits beside the times.
const MAX_LABEL: usize = 42;

impl Axis {
    fn new(bars: &[Bar]) -> Self {
        let mut times: Vec<u64> =
            bars.iter().flat_map(|bar| [Some(bar.call), bar.ret, bar.lease_until]).flatten().collect();
        times.sort_unstable();
        times.dedup();
        let gap = |pair: &[u64]| (1.0 + (pair[1] - pair[0]) as f64).ln();
        let total: f64 = times.windows(2).map(gap).sum();
        let scale = (WIDTH - LEFT - 24.0) / total.max(1.0);
        let mut at = LEFT + 8.0;
        let mut points = Vec::with_capacity(times.len());
        for (index, time) in times.iter().enumerate() {
            if index > 0 {
                at += gap(&times[index - 1..=index]) * scale;
            }
            points.push((*time, at));
        }
        Self { points }
    }

    /// Between two points in proportion, outside at the edge.
    fn place(&self, time: u64) -> f64 {
        let after = self.points.partition_point(|(point, _)| *point <= time);
        let Some(&(before, left)) = after.checked_sub(1).and_then(|index| self.points.get(index)) else {
            return LEFT + 8.0;
        };
        let Some(&(next, right)) = self.points.get(after) else { return left };
        left + (right - left) * (time - before) as f64 / (next - before) as f64
    }
}

const KNOWN: [&str; 6] = ["publish", "deliver", "ack", "nack", "extend", "operate"];
const WIDTH: f64 = 1100.0;
const LEFT: f64 = 470.0;
const TOP: f64 = 16.0;
const ROW: f64 = 24.0;
