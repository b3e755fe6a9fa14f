package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/config"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/starter"
	"github.com/headrace/headrace/internal/storage"
)

type initFlags struct {
	out, name        string
	connection       string
	torch, tf, force bool
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	topics := ""
	for _, k := range dataset.Kinds() {
		if k.Address != "" {
			topics += "\n  headrace init " + k.Address
		}
	}
	cmd := &cobra.Command{
		Use:   "init DATA [--torch | --tf]",
		Short: "Look at your data; write a spec for it and a program that trains",
		Long: `Looks at a file, a folder, a place on S3 or a topic and writes two files: a spec (types, header,
ids to hash) and train.py, which runs as it is and saves checkpoints. The spec is tried
on up to 100,000 records first. DATA is CSV, TSV, JSON lines, Parquet or TFRecord, compressed
or not, or a topic whose records are JSON or delimited text:

  headrace init data/clicks.csv
  headrace init data                                 the most frequent kind of file in it
  headrace init s3://lake/clicks                     with the credentials that aws would use, or --connection` + topics + `

If there is no ` + config.DefaultFile + ` it writes one too, so that the job has the dataset's name.`,
		Example: `  headrace init data/clicks.csv
  headrace run -f clicks.yaml -- python train.py`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name your data: a file, a folder or a topic, as in `headrace init data/clicks.csv`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.init(cmd, &f, args[0]) },
	}
	cmd.Flags().StringVar(&f.out, "out", ".", "`folder` for what is written")
	cmd.Flags().StringVar(&f.name, "name", "", "name of the dataset (default: that of the file or topic)")
	cmd.Flags().StringVar(&f.connection, "connection", "", "`name` of the connection for data on S3 (docs/FILES.md)")
	cmd.Flags().BoolVar(&f.torch, "torch", false, "the program uses torch")
	cmd.Flags().BoolVar(&f.tf, "tf", false, "the program uses TensorFlow, with Keras")
	cmd.Flags().BoolVar(&f.force, "force", false, "write over files that are there")
	return cmd
}

func (a *app) init(cmd *cobra.Command, f *initFlags, data string) error {
	if err := a.load(cmd, nil); err != nil {
		return err
	}
	if f.torch && f.tf {
		return advice.Usage.Errorf("say one of them, or none for numpy", "--torch and --tf are two programs")
	}
	out, err := filepath.Abs(f.out)
	if err != nil {
		return err
	}
	bucket := func(connection, url string) (storage.Objects, error) {
		return a.connections.Objects(connection, url, []string{url})
	}
	plan, err := starter.Look(cmd.Context(), data, out, f.name, starter.Openers{Source: a.openOwn, Bucket: bucket, Connection: f.connection})
	if err != nil {
		return err
	}
	spec, program, settings := plan.Name+".yaml", "train.py", config.DefaultFile
	run := "headrace run -f " + spec + " -- python train.py"
	var written []file
	job, taken := plan.Name, ""
	if there, err := exists(filepath.Join(out, settings)); err != nil {
		return err
	} else if there || spec == settings {
		run = "headrace run --model replicated -f " + spec + " -- python train.py"
	} else {
		if job, taken, err = a.ownJob(out, plan.Name); err != nil {
			return err
		}
		written = append(written, file{settings, fmt.Sprintf("# Settings of every `headrace` that is started in this folder; see docs/CLI.md.\njob: %s\nmodel: replicated   # one model. train.py trains it in one process; several ranks need DDP or the like (docs/torch.md)\n", job)})
	}
	if spec == settings {
		spec = plan.Name + "-data.yaml"
	}
	with := "numpy"
	switch {
	case f.torch:
		with = "torch"
	case f.tf:
		with = "tf"
	}
	text, err := plan.Program(with, run)
	if err != nil {
		return err
	}
	written = append([]file{{spec, plan.File(spec, run)}, {program, text}}, written...)
	if err := writeAll(out, written, f.force); err != nil {
		return err
	}
	for _, line := range plan.Summary() {
		fmt.Fprintln(a.out, "  "+line)
	}
	for _, note := range plan.Notes {
		fmt.Fprintln(a.out, "note: "+note)
	}
	if taken != "" {
		fmt.Fprintf(a.out, "note: job %s was begun in %s, so this one is called %s (%s)\n", plan.Name, taken, job, settings)
	}
	names := make([]string, len(written))
	for i, w := range written {
		names[i] = w.name
	}
	if f.out != "." {
		run = "cd " + forShell(f.out) + " && " + run
	}
	fmt.Fprintf(a.out, "wrote %s. The next command:\n\n    %s\n", strings.Join(names, ", "), run)
	return nil
}

// forShell quotes a word if a shell would not take it as it is.
func forShell(word string) string {
	if strings.IndexFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+=:,@%", r)
	}) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

type file struct{ name, text string }

// writeAll writes all files or none. Without force it writes over none that is there.
func writeAll(folder string, files []file, force bool) error {
	for _, f := range files {
		there, err := exists(filepath.Join(folder, f.name))
		if err != nil {
			return err
		}
		if there && !force {
			return advice.Failed.Errorf("--force writes over it; --out FOLDER writes elsewhere; --name NAME names the dataset", "%s is there already", filepath.Join(folder, f.name))
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(folder, f.name), []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
