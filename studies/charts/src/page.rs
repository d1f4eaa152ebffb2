//! One page with all figures that needs no other file.

use std::fmt::Write as _;

use crate::figure::{Figure, Table};

const STYLE: &str = "\
body{font:16px/1.55 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:68rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.7rem}h2{font-size:1.3rem;margin-top:3rem;border-top:1px solid #ddd;padding-top:1.2rem}\
svg{max-width:100%;height:auto;display:block;margin:1rem 0}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #e6e6e6;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #999;vertical-align:bottom;white-space:normal}\
code,pre{font:.86rem/1.4 ui-monospace,monospace;background:#f4f4f4}code{padding:.1rem .3rem}\
pre{padding:.7rem;overflow:auto;max-height:24rem}summary{cursor:pointer;margin:.8rem 0;color:#333}";

/// Text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(table: &Table) -> String {
    let cells = |tag: &str, row: &[String]| -> String {
        row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let mut html =
        format!("<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>\n", cells("th", &table.header));
    for row in &table.rows {
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", row));
    }
    html + "</tbody></table></div>\n"
}

/// The page: its title, what it is about, and what made it.
pub fn html(title: &str, about: &str, figures: &[Figure], command: &str) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n\
         <p>{} Made by <code>{}</code>, version {}; the same command makes the same numbers.</p>\n<ul>\n",
        escape(about),
        escape(command),
        env!("CARGO_PKG_VERSION"),
        title = escape(title),
    );
    for figure in figures {
        let _ = writeln!(html, "<li><a href=\"#{}\">{}</a></li>", figure.name, escape(&figure.title));
    }
    html.push_str("</ul>\n");
    for figure in figures {
        let _ = writeln!(html, "<h2 id=\"{}\">{}</h2>", figure.name, escape(&figure.title));
        for picture in &figure.pictures {
            // A document inside another has no XML declaration.
            let svg = picture.svg.find("<svg").map_or("", |at| &picture.svg[at..]);
            html.push_str(svg);
            html.push('\n');
        }
        for paragraph in &figure.text {
            let _ = writeln!(html, "<p>{}</p>", escape(paragraph));
        }
        html.push_str(&table(&figure.table));
        let numbers = serde_json::to_string_pretty(&figure.numbers).unwrap_or_default();
        let _ = writeln!(
            html,
            "<details><summary>All numbers, parameters and seeds (JSON)</summary><pre>{}</pre></details>",
            escape(&numbers)
        );
    }
    html + "</body></html>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Picture;

    #[test]
    fn the_page_holds_everything_and_refers_to_nothing() {
        let figure = Figure {
            name: "f".to_owned(),
            title: "A < B".to_owned(),
            text: vec!["one & two".to_owned()],
            pictures: vec![Picture { name: "p".to_owned(), svg: "<?xml?><svg>1</svg>".to_owned() }],
            table: Table { header: vec!["h".to_owned()], rows: vec![vec!["<c>".to_owned()]] },
            numbers: serde_json::json!({ "n": 1.5 }),
        };
        let html = html("T & U", "About it.", &[figure], "thc figures");
        for part in [
            "<h1>T &amp; U</h1>",
            "About it.",
            "A &lt; B",
            "one &amp; two",
            "<svg>1</svg>",
            "<td>&lt;c&gt;</td>",
            "&quot;n&quot;: 1.5",
            "#f",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("<?xml") && !html.contains("http"));
    }
}
