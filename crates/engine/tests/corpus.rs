//! The fuzz targets on stable Rust, fed with every file of their corpora.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::path::Path;

/// Feeds all files of a corpus to `target`, and each with its end cut off.
fn feed(corpus: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("a corpus") {
        let path = file.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a file that can be read");
        println!("{}", path.display());
        target(&bytes);
        target(&bytes[..bytes.len() / 2]);
        count += 1;
    }
    assert!(count >= 20, "{corpus}: only {count} files");
}

#[test]
fn every_script_of_the_corpus_is_read_and_run() {
    feed("script", targets::script);
}

#[test]
fn every_server_of_the_corpus_is_heard_the_same_however_it_is_cut() {
    feed("wire", targets::wire);
}

#[test]
fn every_histogram_of_the_corpus_is_read_or_refused() {
    feed("stored", targets::stored);
}
