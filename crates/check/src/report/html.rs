//! A report as one page that needs no network: a timeline for each finding.
//!
//! The axis is not to scale: pauses are drawn by their logarithm, so that a lease of 30 s leaves room for calls of a
//! microsecond. Numbers beside it are exact.

mod timeline;

use std::fmt::Write;

use super::{Finding, Report};

/// The report as one page.
#[must_use]
pub fn as_html(report: &Report) -> String {
    let mut page = String::new();
    let verdict = report.verdict.word();
    push(&mut page, format_args!("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{verdict}</title>"));
    push(&mut page, format_args!("<style>{STYLE}</style><h1 class=\"{verdict}\">{verdict}</h1>"));
    let read = &report.read;
    push(
        &mut page,
        format_args!(
            "<p>{}.<br>Mode: {}.<br>{} records: {} publishes, {} deliveries, {} settles, {} pairs.</p>",
            escaped(&report.reason),
            report.mode.words(),
            read.records,
            read.publishes,
            read.deliveries,
            read.settles,
            read.pairs
        ),
    );
    push_rules(&mut page, report);
    if !report.findings.is_empty() {
        page.push_str(LEGEND);
    }
    for finding in report.findings.iter().take(MAX_SHOWN) {
        push_finding(&mut page, report, finding);
    }
    if report.findings.len() > MAX_SHOWN {
        push(&mut page, format_args!("<p>{} more are not shown.</p>", report.findings.len() - MAX_SHOWN));
    }
    page
}

fn push_rules(page: &mut String, report: &Report) {
    page.push_str("<table><tr><th>rule<th>judged<th>found<th>explained<th>not judged");
    for line in &report.rules {
        let class = if line.found > 0 { "found" } else { "" };
        push(
            page,
            format_args!(
                "<tr class=\"{class}\"><td>{}<td>{}<td>{}<td>{}<td>{}",
                line.rule.name(),
                line.judged,
                line.found,
                line.explained,
                line.not_judged
            ),
        );
    }
    page.push_str("</table>");
}

fn push_finding(page: &mut String, report: &Report, finding: &Finding) {
    push(page, format_args!("<section><h2>{}</h2><p class=\"about\">", finding.rule.name()));
    for (word, value) in [("path", &finding.path), ("msg", &finding.msg), ("other", &finding.other)] {
        if let Some(value) = value {
            push(page, format_args!("{word} <b>{}</b> ", escaped(value)));
        }
    }
    push(page, format_args!("</p><p>{}</p>", escaped(&finding.text)));
    if let Some(explained) = &finding.explained {
        push(page, format_args!("<p>Explained: {}.</p>", escaped(explained)));
    }
    timeline::push(page, finding, &report.faults);
    page.push_str("<pre>");
    for record in &finding.records {
        push(page, format_args!("<i>{}</i> {}\n", escaped(&record.place), escaped(record.text.trim())));
    }
    page.push_str("</pre></section>");
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a string cannot fail");
}

/// Text that stands in the page as it is, whatever a history contains.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// So many findings are drawn: more than anybody looks at.
const MAX_SHOWN: usize = 200;

const LEGEND: &str = "<p class=\"legend\"><i class=\"publish\"></i>publish <i class=\"deliver\"></i>delivery \
<i class=\"ack\"></i>ack <i class=\"nack\"></i>nack <i class=\"extend\"></i>extend <i class=\"operate\"></i>operator \
<i class=\"lease\"></i>lease, at least <i class=\"fault\"></i>fault <i class=\"proof\"></i>proof<br>\
A bar is a call, from its start to its answer; a pale one never returned. Times are since the first call shown. The axis is not \
to scale: long pauses are drawn short.</p>";

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#1b1f24}\
h1{display:inline-block;padding:.1em .6em;border-radius:6px;background:#b42318;color:#fff}\
h1.OK{background:#18794e}h1.OVERDUE,h1.UNKNOWN,h1.STALLED,h1.ANOMALY{background:#9a6700}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{text-align:right;padding:1px 14px}\
td:first-child,th:first-child{text-align:left}tr.found{background:#fdecea;font-weight:600}\
section{border-top:1px solid #d0d7de;margin-top:2em}.about{color:#57606a}\
pre{background:#f6f8fa;padding:.8em;white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px}pre i{color:#57606a}\
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#1b1f24}svg .time{fill:#57606a;font-size:10px}\
.publish{fill:#0969da}.deliver{fill:#8250df}.ack{fill:#18794e}.nack{fill:#bc4c00}.extend{fill:#57606a}.operate{fill:#1b1f24}\
.other{fill:#57606a}.lease{fill:#8250df;opacity:.18}.fault{fill:#b42318;opacity:.1}.open{opacity:.5}\
.proof{stroke:#b42318;stroke-width:2}\
.legend i{display:inline-block;width:22px;height:11px;margin:0 4px 0 12px}.legend{color:#57606a}.legend i:first-child{margin-left:0}\
i.publish{background:#0969da}i.deliver{background:#8250df}i.ack{background:#18794e}i.nack{background:#bc4c00}i.extend{background:#57606a}\
i.operate{background:#1b1f24}i.lease{background:#8250df}i.fault{background:#b42318}i.proof{border:2px solid #b42318;box-sizing:border-box}";

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_of_a_history_becomes_markup() {
        assert_eq!(escaped("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
