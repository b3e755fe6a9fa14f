package testbroker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
)

// RegistryVersion is the version of Apicurio Registry in registry-pom.xml.
const RegistryVersion = "2.6.13.Final"

//go:embed registry-pom.xml
var registryPOM []byte

var apicurio = software{name: "Apicurio", version: RegistryVersion, size: "142 MB", pom: registryPOM, goal: "unpack-dependencies"}

// Registry is a real schema registry (Apicurio), which has the HTTP API of Confluent's. It keeps schemas in
// memory. Its methods are called by one goroutine.
type Registry struct {
	process
	app  string
	port int
	log  io.Writer
}

// StartRegistry starts the registry and returns when it answers.
func StartRegistry(ctx context.Context, log io.Writer) (*Registry, error) {
	app, err := apicurio.jars(ctx)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	r := &Registry{app: app, port: ports[0], log: log}
	if r.process, err = newProcess("Registry"); err != nil {
		return nil, err
	}
	cmd := exec.Command("java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port="+strconv.Itoa(r.port),
		"-cp", filepath.Join(app, "apicurio-registry-app-"+RegistryVersion+"-runner.jar")+":"+filepath.Join(app, "lib", "*"), "io.quarkus.runner.GeneratedMain")
	cmd.Dir = r.dir
	if err := r.start(ctx, cmd, log, r.answers); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// URL is the base of Confluent's API.
func (r *Registry) URL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) + "/apis/ccompat/v7"
}

func (r *Registry) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/subjects", nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the registry answers with status %s", resp.Status)
	}
	return nil
}
