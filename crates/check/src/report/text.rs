//! A report for people, as text.

use std::fmt;

use super::{Finding, Report};

/// Prints a report as text: the verdict first, one line per rule, then each finding.
pub struct AsText<'a>(pub &'a Report);

impl fmt::Display for AsText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(out, "verdict: {}", report.verdict.word())?;
        writeln!(out, "reason: {}", report.reason)?;
        let read = &report.read;
        writeln!(
            out,
            "read: {} records ({} publishes, {} deliveries, {} settles), {} pairs, {} unreadable lines",
            read.records, read.publishes, read.deliveries, read.settles, read.pairs, read.unreadable
        )?;
        writeln!(out, "mode: {}", report.mode.words())?;
        for line in &report.unreadable {
            writeln!(out, "unreadable: {}: {}", line.place, line.reason)?;
        }
        writeln!(out)?;
        writeln!(out, "{:<22} {:>10} {:>8} {:>10} {:>11}", "rule", "judged", "found", "explained", "not judged")?;
        for line in &report.rules {
            let (judged, found) = (line.judged, line.found);
            writeln!(
                out,
                "{:<22} {judged:>10} {found:>8} {:>10} {:>11}",
                line.rule.name(),
                line.explained,
                line.not_judged
            )?;
        }
        for finding in &report.findings {
            write_finding(out, finding)?;
        }
        Ok(())
    }
}

fn write_finding(out: &mut fmt::Formatter<'_>, finding: &Finding) -> fmt::Result {
    write!(out, "\n{}", finding.rule.name())?;
    let about = [("path", &finding.path), ("msg", &finding.msg), ("other", &finding.other)];
    for (word, value) in about {
        if let Some(value) = value {
            write!(out, "  {word} {value}")?;
        }
    }
    writeln!(out, "\n  {}", finding.text)?;
    if let Some(explained) = &finding.explained {
        writeln!(out, "  explained: {explained}")?;
    }
    for record in &finding.records {
        writeln!(out, "  {}: {}", record.place, record.text.trim())?;
    }
    Ok(())
}
