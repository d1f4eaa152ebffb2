//! All tables and figures of the five papers, and rows that none of them has.

use super::entry::{Entry, Paper};
use super::{aqgb, double_quantization, lgreco, slimgc, thc, together};

/// The papers with their entries, in the papers' order; what none of them has comes last.
pub const PAPERS: [(Paper, &[Entry]); 6] = [
    (thc::PAPER, &thc::ENTRIES),
    (lgreco::PAPER, &lgreco::ENTRIES),
    (slimgc::PAPER, &slimgc::ENTRIES),
    (aqgb::PAPER, &aqgb::ENTRIES),
    (double_quantization::PAPER, &double_quantization::ENTRIES),
    (together::PAPER, &together::ENTRIES),
];

#[cfg(test)]
mod tests {
    use super::super::entry::{Kind, Part, Status};
    use super::super::study::ALL;
    use super::*;

    #[test]
    fn no_table_or_figure_is_missing_and_none_is_invented() {
        for (paper, entries) in PAPERS {
            let names: std::collections::HashSet<String> = entries.iter().map(Entry::name).collect();
            assert_eq!(names.len(), entries.len(), "{}: an entry stands twice", paper.name);
            for (kind, last) in
                [(Kind::Figure, paper.figures), (Kind::Table, paper.tables), (Kind::Claim, paper.claims)]
            {
                let mut found: Vec<u8> =
                    entries.iter().filter(|entry| entry.kind == kind).map(|entry| entry.number).collect();
                found.dedup();
                let wanted: Vec<u8> = (1..=last).collect();
                assert_eq!(found, wanted, "{}: {kind}s in order, each once or in parts", paper.name);
            }
        }
    }

    #[test]
    fn every_entry_says_what_it_owes() {
        let (mut studies, mut sheets) = (Vec::new(), std::collections::HashMap::new());
        for (paper, entry) in
            PAPERS.iter().flat_map(|(paper, entries)| entries.iter().map(move |e| (paper, e)))
        {
            let name = format!("{} {}", paper.name, entry.name());
            assert!(!entry.title.is_empty(), "{name}");
            match entry.status {
                Status::Drawing => {
                    assert!(entry.published.is_empty() && entry.difference.is_empty(), "{name}");
                }
                Status::Scaled { how, .. } | Status::Computed { how, .. } => {
                    assert!(
                        !how.is_empty() && !entry.difference.is_empty() && !entry.published.is_empty(),
                        "{name}"
                    );
                }
                Status::Elsewhere { how, command, ours, page } => {
                    for text in [how, command, ours, entry.difference, entry.published] {
                        assert!(!text.is_empty(), "{name}");
                    }
                    let path = format!("{}/../docs/{page}", env!("CARGO_MANIFEST_DIR"));
                    assert!(std::path::Path::new(&path).exists(), "{name}: {path}");
                }
            }
            for part in entry.parts() {
                match part {
                    Part::Study(study) => studies.push(study),
                    Part::Sheet(sheet) => {
                        assert!(sheet.drawn.iter().all(|column| *column < sheet.columns.len()), "{name}");
                        let other = sheets.insert(sheet.name, sheet.columns);
                        assert!(other.is_none_or(|columns| columns == sheet.columns), "{name}");
                    }
                }
            }
        }
        for study in ALL {
            assert!(studies.contains(&study), "{} is in no figure", study.name);
        }
    }
}
