"""datatrove's side of `benchmarks/tokens.py write`; runs under an interpreter that has `datatrove[processing,io]`.

    python datatrove_tokens.py TOKENIZER.json FOLDER DOCUMENTS.parquet...

Its own pipeline, Parquet reader and `DocumentTokenizer`, one worker, no shuffling; prints {"cpu": seconds of the work
alone, "tokens": count}.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.tokens import DocumentTokenizer


def cpu() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    tokenizer, folder, *files = sys.argv[1:]
    began = cpu()
    common = os.path.commonpath([Path(path).parent for path in files])
    Path(folder).mkdir(parents=True, exist_ok=True)
    listed = Path(folder, "paths")
    listed.write_text("".join(f"{Path(path).relative_to(common)}\n" for path in files), encoding="utf-8")
    reader = ParquetReader(common, paths_file=str(listed), text_key="text", id_key="id", doc_progress=False)
    writer = DocumentTokenizer(folder, tokenizer, eos_token="[EOS]", shuffle_documents=False)
    LocalPipelineExecutor([reader, writer], tasks=1, workers=1, logging_dir=f"{folder}/logs").run()
    size = 4 if writer.tokenizer.get_vocab_size() > 65_535 else 2
    made = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.name.endswith(".ds"))
    print(json.dumps({"cpu": cpu() - began, "tokens": made // size}))


if __name__ == "__main__":
    main()
