{{- define "neuron-scheduler.labels" -}}
app.kubernetes.io/name: neuron-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "neuron-scheduler.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{- /* The Deployment of the chosen road, and the value of the label app.kubernetes.io/component on its pods. */ -}}
{{- define "neuron-scheduler.deployment" -}}
{{- with .Values.scheduler.customScheduler }}{{ ternary .fullnameOverride "k8s-neuron-scheduler" .enabled }}{{ end }}
{{- end }}
{{- define "neuron-scheduler.component" -}}
{{- ternary "scheduler" "extender" .Values.scheduler.customScheduler.enabled }}
{{- end }}

{{- /*
The profiles as a JSON list: without any in the values, one with the name of AWS's fullnameOverride. The extender alone
has no scheduler name. With the component capacityRequests each asks for machines, with the defaults unless it says more.
*/ -}}
{{- define "neuron-scheduler.profiles" -}}
{{- $profiles := .Values.config.profiles }}
{{- with .Values.scheduler.customScheduler }}
{{- if and .enabled (not $profiles) }}
{{- $profiles = list (dict "schedulerName" .fullnameOverride) }}
{{- end }}
{{- end }}
{{- if .Values.components.capacityRequests }}
{{- $asking := list }}
{{- range $profiles }}{{ $asking = append $asking (merge (deepCopy .) (dict "capacityRequests" dict)) }}{{ end }}
{{- $profiles = $asking }}
{{- end }}
{{- $profiles | default list | toJson }}
{{- end }}

{{- /* The configuration file. The Lease's name is in the policies and the Role too, so it is not a value. */ -}}
{{- define "neuron-scheduler.config" -}}
{{- $lease := dict "leaderElect" true "resourceNamespace" "kube-system" "resourceName" "my-scheduler" }}
{{- $fixed := dict "apiVersion" "neuron-scheduler/v1" "kind" "NeuronSchedulerConfiguration" }}
{{- with include "neuron-scheduler.profiles" . | fromJsonArray }}{{ $_ := set $fixed "profiles" . }}{{ end }}
{{- $_ := set $fixed "leaderElection" (merge $lease (.Values.config.leaderElection | default dict)) }}
{{- merge $fixed (omit .Values.config "profiles") | toYaml }}
{{- end }}

{{- /* The names of the schedulers that give pods device ids, as a JSON list. */ -}}
{{- define "neuron-scheduler.names" -}}
{{- $names := list }}
{{- if .Values.scheduler.customScheduler.enabled }}
{{- range include "neuron-scheduler.profiles" . | fromJsonArray }}{{ $names = append $names .schedulerName }}{{ end }}
{{- end }}
{{- if .Values.scheduler.defaultScheduler.enabled }}{{ $names = append $names "default-scheduler" }}{{ end }}
{{- concat $names .Values.otherSchedulerNames | uniq | toJson }}
{{- end }}
